"""Every limit, with its unit and its reason. Nothing in Holdfast grows without one."""

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
YEAR_MS = 366 * DAY_MS

# A moment fits the 43 bits that a rank has for it: until the year 2248.
TIME_MS_BITS = 43
MAX_TIME_MS = (1 << TIME_MS_BITS) - 1
# Ten years: longer than anybody means, and its sum with now stays below MAX_TIME_MS.
MAX_DURATION_MS = 10 * YEAR_MS

NAME_BYTES = 255
# Documents' hosts are short, but a domain may be a URL.
DOMAIN_BYTES = 1_024
UNIQUE_KEY_BYTES = 1_024
# A key in a log: one byte more, which marks keys that are bytes.
LOG_KEY_BYTES = UNIQUE_KEY_BYTES + 1
DATA_BYTES = 16 * 1024 * 1024
NOTE_BYTES = 1_024
# What follows a job (`then`), with its arguments and all that follows that: it stands in the job's record,
# which is written at every change.
THEN_BYTES = 64 * 1024
ERROR_BYTES = 16 * 1024
# The results of a job's steps, all together.
STEP_BYTES = 1024 * 1024
# How many of a job's last errors are kept with it.
ERRORS_KEPT = 5
STEPS_KEPT = 1_000
LOG_LINES = 1_000
LOG_LINE_BYTES = 4 * 1024
# A job's log is rewritten with each batch of lines, so it stays small; the last lines are kept.
LOG_BYTES = 64 * 1024

MAX_PRIORITY = 1_000
DEFAULT_PRIORITY = 500
MAX_ATTEMPTS = 1_000_000

DEFAULT_LEASE_MS = 60 * SECOND_MS
MIN_LEASE_MS = 10
DEFAULT_RETENTION_MS = DAY_MS

# One claim hands out at most this much; a single larger body still goes out alone.
CLAIM_JOBS = 1_000
CLAIM_BYTES = 32 * 1024 * 1024
# A job whose lease ran out shares an executor with at most so many others of its kind, itself included:
# which of them ended the worker that had them, if any did, is not known.
SUSPECT_CROWD = 16
# One transaction adds at most this many jobs, and one `add_many` is cut into such.
BATCH_JOBS = 10_000
BATCH_BYTES = 64 * 1024 * 1024
PAGE_JOBS = 1_000

MAX_RATE_PER_S = 1_000_000.0
MIN_RATE_PER_S = 1e-6
MAX_BURST = 1_000_000
MAX_CONCURRENCY = 1_000_000
# How many jobs of one (domain, task) stand READY where its limit is larger, and where
# there is no limit at all nobody is held.
ALLOWANCE = 64

# A schedule's number goes into the ids of its jobs: 5 bits of sequence for each ms of a second.
MAX_SCHEDULES = 32_000
# Firings made up for at once after a long sleep, `catch_up="all"`.
CATCH_UP_FIRINGS = 1_000

# A sysid is held this long after the last write of its process, and as far ahead go its ids.
SYSID_LEASE_MS = 60 * SECOND_MS
# So long a journal makes ids while the store is away.
JOURNAL_LEASE_MS = 7 * DAY_MS

# A token's name is part of its secret, which travels in a header.
TOKEN_NAME_BYTES = 64
TOKENS = 10_000

# The scripts of a handler, all together; and how many versions of one are kept, the newest ones.
HANDLER_BYTES = 1024 * 1024
HANDLER_VERSIONS = 1_000
# How many handlers are read at once with their scripts, and how many versions are on a page.
HANDLERS_FOUND = 64
HANDLER_PAGE = 100

# ── the job-command port ─────────────────────────────────────────────────────────────────────────

# A pattern, or a list of names, of GetJob: fifty names, as the documents have it.
GLOB_BYTES = 50 * NAME_BYTES
# Method line and headers of one request, without the values of the headers that carry payloads (`data`,
# `jobs`, `jobIDs`, `query`): fifty names for GetJob need 13 KB.
PORT_LINES_BYTES = 64 * 1024
# The same with those values. Escapes double at most what they protect, so the largest data fits.
PORT_HEAD_BYTES = 2 * DATA_BYTES + PORT_LINES_BYTES
PORT_HEADERS = 256
# A body belongs to no command and is thrown away as it comes; more than this is a mistake.
PORT_BODY_BYTES = 64 * 1024 * 1024
PORT_CHUNK_LINE_BYTES = 1_024
# What may be sent ahead of the replies by one client before it is no longer read from.
PORT_PIPELINED = 64
PORT_PIPELINED_BYTES = 1024 * 1024
PORT_CONNECTIONS = 4_096
# Requests that are not whole yet, of all clients together: further requests are refused.
PORT_BUFFERED_BYTES = 256 * 1024 * 1024
# The documents' own limit of UpdateJob's data.
PORT_UPDATE_BYTES = 1024 * 1024
# One CreateJobs or RequeueJobs is one transaction.
PORT_BATCH_JOBS = BATCH_JOBS
# Children that a resumed parent is told of.
PORT_CHILDREN = 10_000
PORT_WAIT_MS = 110 * SECOND_MS
PORT_MOST_WAIT_MS = HOUR_MS
# What one Query may look at, answer, and take.
QUERY_BYTES = 64 * 1024
QUERY_ROWS = 100_000
QUERY_ANSWER_BYTES = 16 * 1024 * 1024
QUERY_VALUE_BYTES = 1024 * 1024
QUERY_MS = 5 * SECOND_MS

# ── the HTTP door ────────────────────────────────────────────────────────────────────────────────

# One request: NDJSON of a whole batch fits.
HTTP_BODY_BYTES = BATCH_BYTES
HTTP_HEAD_BYTES = 64 * 1024
# Bodies that are being read, of all clients together: further requests are told to wait.
HTTP_BUFFERED_BYTES = 256 * 1024 * 1024
HTTP_KEY_BYTES = 255
# A long poll; proxies cut off what is silent for longer.
HTTP_WAIT_S = 60.0
# Idle ones are cheap, and held; a process has so many files at most.
HTTP_CONNECTIONS = 20_000

# How much one round of upkeep does before it lets others write.
UPKEEP_JOBS = 500

# An index of a consumer, the width of the stores' own numbers.
MAX_INDEX = (1 << 63) - 1
MAX_PROCESSING = 10_000
# How many keys of a log are known after its items are gone, unless it says otherwise: 0008.
KEEP_KEYS = 1_000_000
# One reading of a log brings at most this many items; fewer where they are large.
LOG_PAGE_ITEMS = 1_024
LOG_PAGE_BYTES = 1024 * 1024
