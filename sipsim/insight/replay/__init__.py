"""The second pass: performs the op log of a SIP again during the run and compares the data bit for bit (ADR-0020).

The first pass simulates time and moves bytes, and gives a :class:`~sipsim.records.replay.Feed`, in order:
records with their result values, writes by the host, and messages that arrived. The second pass
(:class:`~sipsim.insight.replay.second_pass.SecondPass`) runs one batch behind, in the same process, on separate
memories. It performs each record by the rule of the record's kind (:mod:`sipsim.records.replay`), and compares values.
The second pass takes no simulated time and does not change the run.
"""
