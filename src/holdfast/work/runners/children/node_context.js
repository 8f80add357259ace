// A context for JavaScript handlers: reads requests from descriptor 3, and writes a reply to each to descriptor 4.
//
// A body is the body of an async function of `payload`, `data` and `job`; what `before` declares is global.
'use strict';

const fs = require('fs');
const vm = require('vm');

const REQUESTS_FD = 3;
const REPLIES_FD = 4;
const CHUNK_BYTES = 65536;
const AsyncFunction = (async () => {}).constructor;

const LEAST_EXIT_CODE = 100;
const MOST_EXIT_CODE = 599;

// What a body returns to choose how its job ends; no data is one.
class ExitCode {
  constructor(code, body, error) {
    if (!Number.isInteger(code) || code < LEAST_EXIT_CODE || code > MOST_EXIT_CODE) {
      throw new RangeError(`exit code ${code}: a number from ${LEAST_EXIT_CODE} to ${MOST_EXIT_CODE} is needed`);
    }
    Object.assign(this, { code, body, error: String(error ?? '') });
  }
}

const handlers = new Map();
globalThis.require = require;
globalThis.exitcode = (code, body, error) => new ExitCode(code, body, error);
// Output of a job must be in the pipe before its reply.
for (const stream of [process.stdout, process.stderr]) stream._handle?.setBlocking?.(true);

function compileScript(text, name) {
  return text ? new AsyncFunction(text + `\n//# sourceURL=${name}`) : null;
}

function define(request) {
  handlers.set(request.handler, {
    body: new AsyncFunction('payload', 'data', 'job', request.body + '\n//# sourceURL=body'),
    before_each: compileScript(request.before_each, 'beforeEach'),
    after_each: compileScript(request.after_each, 'afterEach'),
  });
}

function decode(request) {
  if (request.base64 !== undefined) {
    const bytes = Buffer.from(request.base64, 'base64');
    return [bytes, bytes];
  }
  try {
    return [request.payload, JSON.parse(request.payload)];
  } catch {
    return [request.payload, request.payload.replace(/\n$/, '')];
  }
}

async function runJob(request) {
  const [payload, data] = decode(request);
  let result = await handlers.get(request.handler).body(payload, data, request.job);
  let fields = {};
  if (result instanceof ExitCode) {
    fields = { exit_code: result.code, error: wellFormed(result.error) };
    result = result.body;
  }
  if (Buffer.isBuffer(result)) return { ...fields, base64: result.toString('base64') };
  return { ...fields, result: result === undefined ? null : result };
}

async function answer(request) {
  if (request.do === 'run') return runJob(request);
  if (request.do === 'before') vm.runInThisContext(request.text, { filename: 'before' });
  else if (request.do === 'define') define(request);
  else {
    const script = handlers.get(request.handler)[request.do];
    if (script) await script();
  }
  return {};
}

// Half of a surrogate pair is no text, and the reply could not be decoded.
function wellFormed(text) {
  return text.toWellFormed ? text.toWellFormed() : text;
}

function describe(error) {
  if (!(error instanceof Error) && !(error && error.stack)) {
    const text = wellFormed(String(error)) || 'an empty value was thrown';
    return { exit_code: 500, error: text, traceback: '' };
  }
  const frames = String(error.stack).split('\n').filter((line) => !line.includes(__filename));
  const text = wellFormed(`${error.name}: ${error.message}`);
  return { exit_code: 500, error: text, traceback: wellFormed(frames.join('\n')) };
}

function writeAll(text) {
  let bytes = Buffer.from(text);
  while (bytes.length) bytes = bytes.subarray(fs.writeSync(REPLIES_FD, bytes));
}

async function replyTo(line) {
  const request = JSON.parse(line);
  let reply;
  try {
    reply = JSON.stringify({ number: request.number, ...(await answer(request)) });
  } catch (error) {
    reply = JSON.stringify({ number: request.number, ...describe(error) });
  }
  writeAll(reply + '\n');
}

function* readLines() {
  const chunk = Buffer.alloc(CHUNK_BYTES);
  let parts = [];
  for (;;) {
    const count = fs.readSync(REQUESTS_FD, chunk, 0, CHUNK_BYTES, null);
    if (count === 0) return;
    let rest = Buffer.from(chunk.subarray(0, count));
    for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
      parts.push(rest.subarray(0, end));
      yield Buffer.concat(parts).toString();
      parts = [];
      rest = rest.subarray(end + 1);
    }
    parts.push(rest);
  }
}

(async () => {
  for (const line of readLines()) await replyTo(line);
  process.exit(0);
})();
