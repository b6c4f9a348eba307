"""Each group of faults and bad inputs that a run must survive or report by name, and the tests that assert it.

``tests/pure/rules/test_fault_table.py`` checks that these tests exist. A group has a test for each of the cases in its
title. A test asserts the message, or a run that survives with the digest of an undisturbed run.
"""

from typing import NamedTuple

CLUSTER = "tests/cluster/test_faults_cluster.py"
CLUSTER_GROUPS = "tests/cluster/test_fault_groups_cluster.py"
FAILURES = "tests/processes/faults/test_failures.py"
FUZZ = "tests/pure/rules/test_fuzz.py"
GROUPS_RUNS = "tests/processes/faults/test_fault_groups_runs.py"
GROUPS_HERE = "tests/processes/faults/test_fault_groups.py"
SECURE_MAIL = "tests/pure/mail/test_secure_zmq.py"
KILLS = "tests/processes/faults/test_kill_matrix.py"
LAUNCH = "tests/processes/test_launch.py"
AGENTS = "tests/processes/test_agents.py"
REPORTS = "tests/processes/test_reports.py"


class Group(NamedTuple):
    """A row of the table. A test is ``FILE::[CLASS::]FUNCTION``, or a whole file."""

    title: str
    tests: tuple[str, ...]


FAULT_GROUPS: dict[int, Group] = {
    1: Group(
        "SIGKILL of a rank: in a window, between windows, while joining, while replaying",
        (
            KILLS,
            f"{FAILURES}::TestAKilledProcess::test_a_sip",
            f"{FAILURES}::TestAKilledProcess::test_a_sip_by_itself",
            f"{REPORTS}::TestFaults::test_none_moves_the_digest",
            f"{REPORTS}::TestFaults::test_the_next_incarnation_has_its_own",
        ),
    ),
    2: Group(
        "SIGKILL of the broker, the server, the launcher, an agent",
        (
            KILLS,
            f"{FAILURES}::TestAKilledProcess::test_the_broker",
            f"{FAILURES}::TestAKilledProcess::test_the_server",
            f"{FAILURES}::TestAKilledProcess::test_the_launcher",
            f"{REPORTS}::TestResuming::test_after_the_launchers_own",
            f"{AGENTS}::test_nothing_is_left_after_a_kill",
        ),
    ),
    3: Group(
        "SIGSTOP of a rank for 0.5 s (survived) and 10 s (named)",
        (
            KILLS,
            f"{REPORTS}::TestFaults::test_each_is_named",
            f"{AGENTS}::test_an_agent_that_is_stopped_is_a_host_that_is_lost",
        ),
    ),
    4: Group(
        "a hang that holds the interpreter's lock",
        (KILLS, f"{REPORTS}::TestFaults::test_each_is_named"),
    ),
    5: Group(
        "no memory: the kernel's victim, ulimit -v",
        (
            f"{GROUPS_HERE}::TestMemory::test_the_kernels_victim",
            f"{GROUPS_HERE}::TestMemory::test_no_more_addresses",
            "tests/pure/run/test_oom.py::test_the_kernels_own",
            "tests/pure/run/test_oom.py::test_a_control_groups",
        ),
    ),
    6: Group(
        "a link that is down for 0.5 s, for 3 s, for ever",
        (
            f"{CLUSTER}::test_a_short_cut_is_survived",
            f"{CLUSTER_GROUPS}::TestLinks::test_one_that_is_down_for_longer_than_the_heartbeats_wait",
            f"{CLUSTER}::test_a_host_that_is_lost_is_named_in_time",
            f"{CLUSTER}::test_with_restarts_the_digest_is_the_same",
            f"{SECURE_MAIL}::test_a_connection_that_falls_silent_is_lost",
        ),
    ),
    7: Group(
        "packets dropped in one direction",
        (
            f"{CLUSTER}::test_a_host_that_is_lost_is_named_in_time",
            f"{CLUSTER}::test_with_restarts_the_digest_is_the_same",
        ),
    ),
    8: Group(
        "1 to 10 % of packets lost, 20 ms of delay",
        (
            f"{CLUSTER_GROUPS}::TestLinks::test_one_that_loses_packets",
            f"{CLUSTER}::test_lost_packets_are_survived",
            f"{GROUPS_RUNS}::test_twenty_milliseconds_to_the_broker_change_no_result",
        ),
    ),
    9: Group(
        "a host that comes back: its incarnation is fenced",
        (
            f"{CLUSTER}::test_a_host_that_comes_back_is_too_late",
            "tests/pure/sip/test_bad_packets.py::test_a_stale_incarnation_is_refused",
            f"{SECURE_MAIL}::test_a_lost_broker_stays_lost_though_it_could_be_reached_again",
        ),
    ),
    10: Group(
        "two launchers at once, with one config, one run folder",
        (
            f"{LAUNCH}::test_two_launches_at_once_do_not_know_each_other",
            f"{REPORTS}::TestResuming::test_not_while_it_runs",
            f"{SECURE_MAIL}::test_a_second_launcher_is_refused",
        ),
    ),
    11: Group(
        "a port that is taken, a socket's path too long or stale, a folder that cannot be written, a full disk",
        (
            f"{SECURE_MAIL}::test_a_port_in_use_is_an_error_that_leaves_nothing",
            f"{LAUNCH}::TestTemporaryFolder::test_one_whose_name_is_too_long_for_sockets",
            f"{LAUNCH}::TestTemporaryFolder::test_none_that_can_be_written",
            "tests/pure/mail/test_unix_mail.py::test_a_new_broker_replaces_the_file_of_a_dead_one",
            "tests/pure/sip/test_bad_packets.py::test_a_broker_replaces_a_stale_socket_file",
            f"{REPORTS}::TestRefusals::test_one_line_before_anything_starts",
            f"{REPORTS}::TestShowing::test_a_log_that_could_not_be_kept",
            f"{GROUPS_HERE}::TestFullDisk::test_packets_that_cannot_be_kept",
            f"{GROUPS_HERE}::TestFullDisk::test_a_trace",
            f"{GROUPS_HERE}::TestFullDisk::test_a_trace_of_a_rank",
            f"{GROUPS_HERE}::TestFullDisk::test_data_to_be_checked",
            f"{GROUPS_HERE}::TestFullDisk::test_a_result",
            f"{GROUPS_HERE}::TestFullDisk::test_the_table",
        ),
    ),
    12: Group(
        "a rank without a key, with a wrong one, another's; twice; none of the run's; RANK=abc; names that disagree",
        (
            f"{GROUPS_RUNS}::test_foreign_connections_are_reported_and_the_run_succeeds",
            "tests/processes/test_by_hand.py::test_a_ticket_is_for_one_process",
            f"{GROUPS_RUNS}::test_a_ticket_of_a_run_that_is_over",
            f"{GROUPS_RUNS}::test_variables_of_other_launchers_are_ignored",
            f"{AGENTS}::test_an_agent_without_a_node_rank",
            "tests/pure/run/test_environment.py::test_what_is_no_node_rank_is_one_line",
            "tests/pure/broker/test_membership.py::test_refusals",
        ),
    ),
    13: Group(
        "HTTP, garbage and 300 silent connections at the port",
        (
            f"{GROUPS_RUNS}::test_garbage_and_silence_at_the_port_of_a_run",
            f"{SECURE_MAIL}::test_garbage_at_the_port_disturbs_no_other_connection",
            f"{SECURE_MAIL}::test_three_hundred_silent_connections_block_no_sip",
        ),
    ),
    14: Group(
        "frames: too large, cut short, empty, deep; numbers that cannot be; gaps, duplicates, the past, nobody's",
        (
            FUZZ,
            f"{SECURE_MAIL}::test_a_claim_of_two_gigabytes_costs_its_sender_the_connection",
            f"{SECURE_MAIL}::test_a_message_that_is_not_one_frame_is_dropped",
            "tests/pure/sip/test_bad_packets.py::test_an_invalid_batch_is_reported_once",
            "tests/pure/sip/test_bad_packets.py::test_a_duplicate_is_dropped",
            "tests/pure/broker/test_hub.py::test_a_fact_that_cannot_be_true_is_a_failure_never_an_exception",
        ),
    ),
    15: Group(
        "another version, protocol or model on another host",
        (
            f"{GROUPS_RUNS}::test_a_rank_with_another_model_is_refused_by_name",
            "tests/pure/broker/test_membership.py::test_refusals",
            "tests/pure/run/test_ticket.py::test_another_version_is_refused",
            "tests/pure/run/test_environment.py::test_another_version_is_refused",
            "tests/pure/supervise/test_agent_registry.py::test_rejected_agents",
        ),
    ),
    16: Group(
        "a program that is not deterministic",
        (
            f"{GROUPS_RUNS}::test_a_program_that_does_something_else_the_second_time",
            "tests/inproc/sync/test_fault_simulation.py::test_a_nondeterministic_program_is_named",
        ),
    ),
    17: Group(
        "YAML: bombs, duplicates, on; --sips 0, -1, a million; a torus of a prime number",
        (
            f"{LAUNCH}::TestRefusals::test_one_line_and_nothing_is_started",
            f"{LAUNCH}::TestRefusals::test_bad_files",
            "tests/pure/config/test_config_files.py::test_bad_file",
            "tests/pure/config/test_config_mistakes.py::test_mistake_in_one_flag",
        ),
    ),
    18: Group(
        "a rank that exits with 0 too early",
        (
            f"{FAILURES}::TestAKilledProcess::test_a_script_that_leaves_its_process",
            f"{REPORTS}::TestFaults::test_each_is_named",
        ),
    ),
    19: Group(
        "SIGINT once and twice, SIGTERM, SIGHUP, a terminal that is closed",
        (
            f"{FAILURES}::TestAStop::test_a_signal",
            f"{FAILURES}::TestAStop::test_a_signal_to_the_whole_group",
            f"{FAILURES}::TestAStop::test_a_second_ctrl_c_does_not_wait",
            f"{GROUPS_HERE}::TestClosedOutput::test_a_terminal_that_is_closed",
            f"{GROUPS_HERE}::TestClosedOutput::test_standard_error_that_is_closed",
        ),
    ),
    20: Group(
        "64 open files, few processes",
        (
            f"{GROUPS_HERE}::TestOpenFiles::test_few_are_enough_for_few",
            f"{GROUPS_HERE}::TestOpenFiles::test_too_few_for_many",
            f"{GROUPS_RUNS}::test_another_host_with_few_open_files",
            f"{GROUPS_HERE}::TestProcesses::test_too_few",
            f"{GROUPS_HERE}::TestProcesses::test_just_enough",
            "tests/processes/test_server.py::test_a_process_that_cannot_be_started_is_news",
        ),
    ),
    21: Group(
        "a clock that jumps",
        (
            "tests/pure/rules/test_layout.py::test_this_checkout_keeps",
            "tests/pure/rules/test_layout.py::test_a_violation_is_found",
            "tests/pure/supervise/test_supervise.py::test_a_suspended_launcher_has_missed_nothing",
        ),
    ),
    22: Group(
        "hosts at 127.0.1.1, with IPv6 alone, with fewer processors than ranks; ssh that knows another key, or asks",
        (
            "tests/cluster/test_engines.py::test_hosts_that_know_themselves_by_a_loopback_address",
            f"{CLUSTER_GROUPS}::test_hosts_with_ipv6_alone",
            f"{GROUPS_RUNS}::test_hosts_that_speak_ipv6",
            f"{CLUSTER_GROUPS}::test_more_ranks_than_processors",
            f"{CLUSTER_GROUPS}::TestSsh::test_a_host_key_that_has_changed",
            f"{CLUSTER_GROUPS}::TestSsh::test_a_host_that_asks_for_a_password",
        ),
    ),
}
