"""The second pass: what a SIP has recorded is performed again, beside the run, and compared bit for bit (ADR-0020).

The first pass simulates time and moves bytes. It tells a :class:`~sipsim.records.replay.Feed` of its records, in
order, each with the values that it has made; of what the host wrote; and of the messages that arrived. The second pass
(:class:`~sipsim.insight.replay.second_pass.SecondPass`) follows a batch behind, in the same process. It has memories of
its own, performs each record from its fields by the rule of its kind (:mod:`sipsim.records.replay`), and
compares. It takes no simulated time and changes nothing of the run.
"""
