"""Every limit, with its unit and its reason. Nothing in Holdfast grows without one."""

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
YEAR_MS = 366 * DAY_MS

# Times must fit the 43 bits that a rank has for them: until the year 2248.
TIME_MS_BITS = 43
MAX_TIME_MS = (1 << TIME_MS_BITS) - 1
# Ten years: longer than any real use, and now plus ten years stays below MAX_TIME_MS.
MAX_DURATION_MS = 10 * YEAR_MS

NAME_BYTES = 255
# Long enough for a URL.
DOMAIN_BYTES = 1_024
UNIQUE_KEY_BYTES = 1_024
# The key of a log item: one byte more, which marks keys that are bytes.
LOG_KEY_BYTES = UNIQUE_KEY_BYTES + 1
DATA_BYTES = 16 * 1024 * 1024
NOTE_BYTES = 1_024
# The chain of follow-up jobs (`then`) with their arguments. It is part of the job's record, which is written
# at every change.
THEN_BYTES = 64 * 1024
ERROR_BYTES = 16 * 1024
# All step results of a job together.
STEP_BYTES = 16 * 1024 * 1024
# A job keeps its last errors.
ERRORS_KEPT = 5
STEPS_KEPT = 10_000
# One signal; and those that wait for a job: how many, and their bytes. A name is in the job's record.
SIGNAL_BYTES = 256 * 1024
SIGNALS_KEPT = 1_000
SIGNALS_BYTES = 16 * 1024 * 1024
SIGNAL_NAMES = 100
LOG_LINES = 1_000
LOG_LINE_BYTES = 4 * 1024
# The log of a job is rewritten with each batch of lines, so it must be small; the last lines are kept.
LOG_BYTES = 64 * 1024

MAX_PRIORITY = 1_000
DEFAULT_PRIORITY = 500
MAX_ATTEMPTS = 1_000_000

DEFAULT_LEASE_MS = 60 * SECOND_MS
MIN_LEASE_MS = 10
DEFAULT_RETENTION_MS = DAY_MS

# How often a job may begin to undo its steps.
UNDO_TRIES = 100

# One claim returns at most this much; a larger body is returned alone.
CLAIM_JOBS = 1_000
CLAIM_BYTES = 32 * 1024 * 1024
# It brings the steps of jobs that have at most 100: up to 10,000 in all, and up to 1 MB.
CLAIMED_STEPS, CLAIM_STEPS, CLAIM_STEPS_BYTES = 100, 10_000, 1024 * 1024
# At most this many jobs whose leases expired share an executor: any of them may have killed the worker that
# had claimed them.
SUSPECT_CROWD = 16
# One command adds at most this many jobs; `add_many` splits larger batches. Commands that together have more
# are not taken into one batch.
BATCH_JOBS = 10_000
BATCH_BYTES = 64 * 1024 * 1024
# A batch of this size is full: with one more job it could have more than BATCH_BYTES.
FULL_BATCH_BYTES = BATCH_BYTES - DATA_BYTES
PAGE_JOBS = 1_000

MAX_RATE_PER_S = 1_000_000.0
MIN_RATE_PER_S = 1e-6
MAX_BURST = 1_000_000
MAX_CONCURRENCY = 1_000_000
# At most this many jobs of one (domain, task) are READY at once, even if the limit of the domain is larger.
# Without a limit no job is HELD.
ALLOWANCE = 64

# The number of a schedule is part of the ids of its jobs: 5 bits of sequence for each ms of a second.
MAX_SCHEDULES = 32_000
# Missed runs of a schedule that are added at once with `catch_up="all"`.
CATCH_UP_FIRINGS = 1_000

# A process keeps its sysid for this long after its last write, and may make ids this far ahead.
SYSID_LEASE_MS = 60 * SECOND_MS
# A journal can make ids for this long while the store is unreachable.
JOURNAL_LEASE_MS = 7 * DAY_MS

# The name of a token is part of its secret, which is sent in a header.
TOKEN_NAME_BYTES = 64
TOKENS = 10_000

# All scripts of a handler together; and how many of its versions are kept, the newest ones.
HANDLER_BYTES = 1024 * 1024
HANDLER_VERSIONS = 1_000
# How many handlers one query returns with their scripts, and how many versions are on a page.
HANDLERS_FOUND = 64
HANDLER_PAGE = 100

# ── the job-command port ─────────────────────────────────────────────────────────────────────────

# A pattern or a list of names for GetJob: fifty names, as the documents allow.
GLOB_BYTES = 50 * NAME_BYTES
# Method line and headers of one request, without the values of the headers with payloads (`data`, `jobs`,
# `jobIDs`, `query`): fifty names for GetJob need 13 KB.
PORT_LINES_BYTES = 64 * 1024
# The same with those values. Escaping at most doubles the length, so the largest data fits.
PORT_HEAD_BYTES = 2 * DATA_BYTES + PORT_LINES_BYTES
PORT_HEADERS = 256
# No command has a body, so a body is discarded as it arrives; a larger one is an error.
PORT_BODY_BYTES = 64 * 1024 * 1024
PORT_CHUNK_LINE_BYTES = 1_024
# Pipelined requests of one client: beyond this the server stops reading until replies are sent.
PORT_PIPELINED = 64
PORT_PIPELINED_BYTES = 1024 * 1024
PORT_CONNECTIONS = 4_096
# Incomplete requests of all clients together: beyond this, requests are refused.
PORT_BUFFERED_BYTES = 256 * 1024 * 1024
# The limit that the documents set for the data of UpdateJob.
PORT_UPDATE_BYTES = 1024 * 1024
# One CreateJobs or RequeueJobs is one transaction.
PORT_BATCH_JOBS = BATCH_JOBS
# Finished children that a resumed parent gets in its reply.
PORT_CHILDREN = 10_000
PORT_WAIT_MS = 110 * SECOND_MS
PORT_MOST_WAIT_MS = HOUR_MS
# How many jobs one Query may read, how large its answer may be, and how long it may take. SQLite cannot be
# stopped in the middle of a row: so the functions that a query names, and the patterns that it looks for, are
# few and short.
QUERY_BYTES = 64 * 1024
QUERY_ROWS = 100_000
QUERY_ANSWER_BYTES = 16 * 1024 * 1024
QUERY_VALUE_BYTES = 1024 * 1024
QUERY_FUNCTIONS = 100
QUERY_PATTERN_BYTES = NAME_BYTES
QUERY_MS = 5 * SECOND_MS

# ── the HTTP server ────────────────────────────────────────────────────────────────────────────────

# The body of one request: a batch of jobs as NDJSON fits.
HTTP_BODY_BYTES = BATCH_BYTES
HTTP_HEAD_BYTES = 64 * 1024
# Fields in the query of an address: no path has as many.
HTTP_QUERY_FIELDS = 256
# Bodies that are being read, of all clients together: beyond this, requests get 503.
HTTP_BUFFERED_BYTES = 256 * 1024 * 1024
# Lines of one request, empty ones too: each becomes an object.
HTTP_LINES = 10 * BATCH_JOBS
# Values in a body, those inside of data not counted. A list has at most `BATCH_JOBS` elements.
HTTP_VALUES = 40 * BATCH_JOBS
HTTP_KEY_BYTES = 255
# A long poll: proxies close connections that are silent for longer.
HTTP_WAIT_S = 60.0
# Idle connections are cheap and stay open; the limit is the open files of a process.
HTTP_CONNECTIONS = 20_000

# ── the gRPC server ────────────────────────────────────────────────────────────────────────────────

# The largest message that a client may send: a batch of jobs with their names, keys and options.
GRPC_REQUEST_BYTES = BATCH_BYTES + BATCH_JOBS * 4 * 1024
# Parts of one message. Two bytes on the wire can be an empty job, which takes about a kilobyte in memory: so
# messages with parts of their own, all fields, and the numbers of packed fields are counted first.
GRPC_PARTS = 5 * BATCH_JOBS
GRPC_FIELDS = 40 * BATCH_JOBS
GRPC_NUMBERS = 10 * BATCH_JOBS

# Messages and bodies up to this size are read on the event loop, larger ones in threads, a few at once.
READ_AT_ONCE_BYTES = 16 * 1024
LARGE_READS = 2

# How much one round of upkeep does in a transaction, before other writers get their turn.
UPKEEP_JOBS = 500
# So long before the end of its sleep a job is claimed: about as long as a claim takes.
WAKE_EARLY_MS = 10
# How old the time of a plain claim may be when it is sent.
LATE_S = 1.0
# How often a process that claims runs the rest of upkeep while jobs come and go.
UPKEEP_PERIOD_MS = 10_000

# The index of a consumer is a signed 64-bit integer, as in the stores.
MAX_INDEX = (1 << 63) - 1
MAX_PROCESSING = 10_000
# How many keys a log remembers by default after their items were trimmed: see decision 8.
KEEP_KEYS = 1_000_000
# One query of a log returns at most this many items, and fewer if they are large.
LOG_PAGE_ITEMS = 1_024
LOG_PAGE_BYTES = 1024 * 1024
