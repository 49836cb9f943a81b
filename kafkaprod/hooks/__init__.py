"""The user's code on a record's way.

serializers    objects to bytes
partitioners   a key to a partition
interceptors   see each record before it is sent and after its outcome
chain          runs them in order
"""
