"""The files of one subject, which become run_plan.py."""
