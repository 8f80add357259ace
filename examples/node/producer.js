// Adds jobs and waits for the first result:  node producer.js 127.0.0.1:9090 3
const { promisify } = require("node:util");
const { connect, metadata } = require("./queue");

async function main(address, count) {
  const queue = connect(address);
  const call = (name, request) => promisify(queue[name].bind(queue))(request, metadata());

  const jobs = Array.from({ length: count }, (_, n) => ({ task: "resize", data: { json: JSON.stringify({ n }) } }));
  const { job_ids } = await call("Add", { jobs });
  console.log("added", job_ids.join(" "));

  const { ended } = await call("Wait", { job_id: job_ids[0], wait_ms: 30000 });
  console.log("result", ended ? ended.result.json : "not yet");
  queue.close();
}

main(process.argv[2] || "127.0.0.1:9090", Number(process.argv[3] || 3));
