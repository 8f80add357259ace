// The service, loaded from the proto file. 64-bit ids are strings: JavaScript's numbers end at 2^53.
const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const PROTO = process.env.HOLDFAST_PROTO || path.join(__dirname, "../../proto");

exports.connect = (address) => {
  const options = { longs: String, keepCase: true, enums: String, arrays: true };
  const definition = loader.loadSync(path.join(PROTO, "holdfast/v1/queue.proto"), options);
  const { Queue } = grpc.loadPackageDefinition(definition).holdfast.v1;
  return new Queue(address, grpc.credentials.createInsecure());
};

// The token, if the server asks for one.
exports.metadata = () => {
  const metadata = new grpc.Metadata();
  if (process.env.HOLDFAST_TOKEN) metadata.set("authorization", `Bearer ${process.env.HOLDFAST_TOKEN}`);
  return metadata;
};
