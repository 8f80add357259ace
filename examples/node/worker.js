// Runs jobs of the task "resize" until it is told to stop:  node worker.js 127.0.0.1:9090
const { connect, metadata } = require("./queue");

const LEASE_MS = 30000;
const CREDIT = 10;
const RECONNECT_MS = 1000;

async function resize({ n }) {
  return `resized ${n}`;
}

function work(queue) {
  const stream = queue.Work(metadata());
  const running = new Map();

  async function run({ job, data }) {
    const hold = { job_id: job.id, owner: job.owner, claim: job.claim };
    running.set(job.id, hold);
    let answer;
    try {
      answer = { hold, result: { json: JSON.stringify(await resize(JSON.parse(data.json))) } };
    } catch (error) {
      answer = { hold, code: "CODE_ERROR", error: String(error) };
    }
    // Somebody else may have the job by now: then it is not ours to answer.
    if (running.delete(job.id)) stream.write({ answers: [answer], credit: 1 });
  }

  // A lease is extended while its job runs.
  const renewing = setInterval(() => {
    const extends_ = [...running.values()].map((hold) => ({ hold, lease_ms: LEASE_MS }));
    if (extends_.length) stream.write({ extends: extends_ });
  }, LEASE_MS / 3);

  stream.on("data", ({ jobs, settled }) => {
    if (jobs.length) stream.write({ received: jobs.map(({ job }) => job.id) });
    jobs.forEach(run);
    for (const { job_id, error } of settled) {
      if (error) console.error(`job ${job_id}: ${error.text}`);
      if (error && error.code === "LEASE_LOST") running.delete(job_id);
    }
  });
  const again = () => {
    clearInterval(renewing);
    setTimeout(() => work(queue), RECONNECT_MS);
  };
  stream.on("error", (error) => { console.error(error.message); again(); });
  stream.on("end", again);
  stream.write({ start: { tasks: ["resize"], lease_ms: LEASE_MS }, credit: CREDIT });
}

work(connect(process.argv[2] || "127.0.0.1:9090"));
