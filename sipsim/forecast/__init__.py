"""What a job will take, known before it runs: the commands of its kernels, and about how long they are simulated."""
