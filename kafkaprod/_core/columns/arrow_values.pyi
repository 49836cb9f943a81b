import datetime

EPOCH: datetime.datetime
