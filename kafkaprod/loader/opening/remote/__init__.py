"""Read objects of other machines, each byte proven to be of the object that was found.

finding          finds an object by its address
store_objects    objects of S3, Google Cloud Storage and Azure
spooled_objects  objects that are copied to a temporary file first
web_objects      objects of HTTP servers: ranges under a condition, each answer compared
access           how servers are asked
connections      connections to HTTP servers, only to hosts that a load may ask
remote_file      an object as a file, with ranges read ahead
objects          what an object is, and how what fails is read again
addresses        which names are addresses, and what of them may be shown
"""
