"""Marks of writes: what the cluster keeps of a write that is committed, so that one that is run again writes once.

A *write* is what happens once, a *write id* its name in every try, a *try* one run of it. The *mark* is an offset that
a group has committed, in the transaction of the rows; group and transactional id have one name.

async_block  the rows of a block in asyncio
calls    writes as a producer's calls: a list, columns or a table in one, or the rows of a block one by one
listing  the writes that a cluster knows, for commands: list them, and forget one
write    one try of a write: the order of look, fence, rows, mark, guard and commit
endings  how a try ends: its result, and the errors that say what is known
writers  what makes writes, kept from one to the next: a client that looks, and a producer that sends
verdict  whether a mark is that of the same rows
steps    the pending mark, the guard and the commit, for loads and tasks of Spark, too
looks    reading the mark: before and behind the fence, and at the coordinator that has taken the pending mark
digest   the digest of rows on their way, for a try that writes them and for one that only compares
place    where the mark of a write is: the names, and the partition
mark     what a mark says: text in, facts out
"""
