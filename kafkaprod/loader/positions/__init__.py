"""Keep how far a load has come, and find it again after a kill.

in_flight           blocks that were sent; moves the manifest when their outcomes are known
recovery            finds which rows of a load that was killed are in the log
manifest_file       finds, reads, replaces and locks the file of a manifest
positions           finds what a transactional id has loaded; one id may be used for many inputs
committed_position  how far a transactional load has come, committed with its rows
manifest            how far a load has come, kept on disk
"""
