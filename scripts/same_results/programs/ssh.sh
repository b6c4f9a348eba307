#!/bin/sh
while case $1 in -o) shift;; -*) true;; *) false;; esac; do shift; done
shift
exec sh -c "$*"
