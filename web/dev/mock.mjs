// A server of the API v1 with made-up data, for work on the page without a core: `npm run dev`, token "admin", "operate" or
// "read". It is no part of the program.
const ROLES = ["read", "operate", "admin"];
const started = Date.now();
const listeners = new Set();
const buffer = [];
let nextId = 1;

const ues = Array.from({ length: 240 }, (_, n) => ({
  supi: `imsi-99970${String(n + 1).padStart(10, "0")}`,
  rat: n % 7 === 0 ? "eps" : "nr",
  state: "registered",
  connected: n % 3 !== 0,
  guti: `99970-2-1-0-${(0x1000 + n).toString(16).padStart(8, "0")}`,
  ran_node: `gnb-${n % 3}`,
  host: n % 3,
  registered_at: new Date(started - n * 1000).toISOString(),
  sessions: 1,
}));
const dnns = (name) => [
  { dnn: name, types: ["ipv4"], ambr: { uplink_bps: 1e9, downlink_bps: 1e9 }, five_qi: 9, arp_priority: 8 },
];
const subscribers = new Map(
  ues.map(({ supi }) => {
    const slices = [{ snssai: { sst: 1, sd: null }, default: true, dnns: dnns("internet") }];
    const subscription = { slices, ambr: { uplink_bps: 1e9, downlink_bps: 1e9 } };
    return [supi, { version: 1, record: { imsi: supi.slice(5), amf: "8000", subscription } }];
  }),
);
const gnbs = [0, 1, 2].map((n) => ({
  id: `99970-${n + 1}`,
  name: `gnb-${n}`,
  kind: "gNB",
  address: `10.0.0.${n + 2}`,
  tracking_areas: ["99970-1"],
  connected_ues: 50 + n,
  since: new Date(started).toISOString(),
}));
let hosts = [0, 1, 2].map((id) => ({ id, address: `10.0.1.${id}:7000`, state: "serving", buckets: 1365, ues: 80 }));
let alarms = [
  {
    id: 1,
    kind: "ran_node_lost",
    severity: "major",
    raised_at: new Date(started).toISOString(),
    object: "gnb-9",
    detail: "the last association of the RAN node ended",
  },
];
const imports = new Map();
let configuration = '[core]\nplmns = ["99970"]\ntacs = [1]\n\n[log]\nlevel = "info"\n';
let configurationVersion = 1;

function emit(topic, data) {
  const event = { id: nextId++, topic, data: { time: new Date().toISOString(), ...data } };
  buffer.push(event);
  if (buffer.length > 500) buffer.shift();
  for (const send of listeners) send(event);
}

function overview() {
  const seconds = (Date.now() - started) / 1000;
  const wave = 1 + 0.3 * Math.sin(seconds / 7);
  const latency = (procedure, p99_us, objective_us) => ({
    slice: "default",
    procedure,
    p50_us: p99_us / 3,
    p99_us: Math.round(p99_us * wave),
    objective_us,
    late_ratio: 0.001,
  });
  return {
    registered: ues.length,
    connected: 160,
    sessions: ues.length,
    ran_nodes: gnbs.length,
    procedures_per_second: Math.round(120 * wave),
    latencies: [latency("registration", 90000, 200000), latency("service-request", 8000, 10000)],
    user_plane: {
      uplink_packets: Math.round(seconds * 4000),
      uplink_octets: Math.round(seconds * 3e6),
      downlink_packets: Math.round(seconds * 9000),
      downlink_octets: Math.round(seconds * 9e6 * wave),
      dropped_packets: 3,
    },
    hosts: hosts.length,
    alarms: { critical: 0, major: alarms.filter((a) => a.severity === "major").length, minor: 0, warning: 0 },
  };
}

const problem = (status, detail, errors) => ({
  status,
  type: "application/problem+json",
  body: { type: "about:blank", title: `Status ${status}`, status, detail, errors },
});
const ok = (body, more = {}) => ({ status: 200, body, ...more });

function list(items, url) {
  const limit = Math.min(1000, Number(url.searchParams.get("limit") ?? 100));
  const from = Number(url.searchParams.get("after") ?? 0);
  const next = from + limit < items.length ? String(from + limit) : null;
  return ok({ items: items.slice(from, from + limit), next, total: items.length });
}

function subscriber(method, supi, body, ifMatch) {
  const known = subscribers.get(supi);
  if (!known) return problem(404, "no such subscriber");
  const etag = `"${known.version}"`;
  if (method === "GET") return ok(known.record, { etag });
  if (ifMatch !== etag) return problem(412, "the subscriber has changed");
  if (method === "DELETE") {
    subscribers.delete(supi);
    return { status: 204 };
  }
  const { k, opc, ...record } = JSON.parse(body);
  if (opc && !k) return problem(400, "the record is not valid", [{ pointer: "/k", detail: "K is missing" }]);
  subscribers.set(supi, { version: known.version + 1, record });
  return ok(record, { etag: `"${known.version + 1}"` });
}

function importFile(url, text) {
  const lines = text.trim().split("\n").slice(1);
  const errors = lines.flatMap((line, n) =>
    /^\d{6,15},/.test(line) ? [] : [{ line: n + 2, detail: "the IMSI is not 6 to 15 digits" }],
  );
  if (url.searchParams.get("dry_run") === "true") {
    return ok({ rows: errors.length > 0 ? null : lines.length, valid: errors.length === 0, errors, existing: 0 });
  }
  const id = imports.size + 1;
  imports.set(String(id), { id, state: "running", rows: lines.length, done: 0 });
  return { status: 202, body: { id }, location: `/v1/imports/${id}` };
}

function answer(method, url, body, headers, role) {
  const path = url.pathname;
  const [, , name, id, verb] = path.split("/").map(decodeURIComponent);
  const may = (needed) => ROLES.indexOf(role) >= ROLES.indexOf(needed);
  const changes = method !== "GET";
  const admin = ["configuration", "imports", "audit"].includes(name) || (changes && name === "subscribers");
  if (admin && !may("admin")) return problem(403, "this needs role admin");
  if (changes && !may("operate")) return problem(403, "this needs role operate");
  switch (`${method} ${name}${id === undefined ? "" : "/"}${verb ?? ""}`) {
    case "GET session":
      return ok({ name: `token of ${role}`, role, version: "0.2.0", commit: "mock" });
    case "GET overview":
      return ok(overview());
    case "GET ues": {
      const has = (key) => (ue) => !url.searchParams.get(key) || String(ue[key]).includes(url.searchParams.get(key));
      return list(ues.filter(has("supi")).filter(has("state")).filter(has("ran_node")).filter(has("guti")), url);
    }
    case "GET ues/": {
      const ue = ues.find((candidate) => candidate.supi === id);
      const session = { id: 1, dnn: "internet", slice: "default", address: "10.45.0.2", upf: "upf", qfi: 1, uplink_octets: 12e6 };
      const msisdn = subscribers.get(id)?.record.msisdn;
      return ue ? ok({ ...ue, msisdn, sessions: [session] }) : problem(404, "no such UE");
    }
    case "POST ues/deregister":
      emit("ue", { supi: id, change: "deregistered" });
      return { status: 202, body: {} };
    case "GET subscribers":
      return list(
        [...subscribers.values()].map((s) => s.record).filter((s) => s.imsi.startsWith(url.searchParams.get("supi_prefix") ?? "")),
        url,
      );
    case "POST subscribers": {
      const { k, opc, ...record } = JSON.parse(body);
      if (subscribers.has(`imsi-${record.imsi}`)) return problem(409, "the subscriber exists already");
      subscribers.set(`imsi-${record.imsi}`, { version: 1, record });
      return { status: 201, body: record, location: `/v1/subscribers/imsi-${record.imsi}` };
    }
    case "POST subscribers/":
      return id === "import" ? importFile(url, body) : problem(404, "no such route");
    case "GET subscribers/":
    case "PUT subscribers/":
    case "DELETE subscribers/":
      return subscriber(method, id, body, headers["if-match"]);
    case "GET imports/": {
      const own = imports.get(id);
      own.done = own.rows;
      const now = { ...own };
      own.state = "done";
      return ok(now);
    }
    case "GET ran-nodes":
      return list(gnbs, url);
    case "GET hosts":
      return list(hosts, url);
    case "GET balancers":
      return list([{ id: 0, address: "10.0.2.1:7000", state: "serving" }], url);
    case "POST hosts/drain": {
      hosts = hosts.filter((host) => String(host.id) !== id);
      hosts = hosts.map((host) => ({ ...host, buckets: Math.floor(4096 / hosts.length) }));
      emit("host", { host: Number(id), change: "left" });
      return { status: 202, body: {} };
    }
    case "GET upfs":
      return list([{ name: "upf", node: "10.0.0.1", associated: true, user_plane: { sessions: 240, traffic: overview().user_plane } }], url);
    case "GET data-networks":
      return list([{ dnn: "internet", pools: [{ cidr: "10.45.0.0/16", used: 240, size: 65533 }], upfs: ["upf"] }], url);
    case "GET user-plane":
      return ok({ slices: [{ slice: "default", snssai: "1", users: 240, workers: [{ number: 0, core: 1, users: 240, traffic: overview().user_plane }] }] });
    case "GET configuration":
      return ok(configuration, { type: "application/toml", etag: `"${configurationVersion}"` });
    case "POST configuration/":
      if (body.includes("!")) return ok({ valid: false, errors: [{ line: 1, detail: "this is no TOML" }] });
      return ok({ valid: true, changes: [{ key: "log.level", old: "info", new: "debug", applies: "now" }] });
    case "PUT configuration":
      configuration = body;
      configurationVersion += 1;
      return ok({});
    case "GET alarms":
      return list(alarms, url);
    case "POST alarms/acknowledge":
      alarms = alarms.map((alarm) => (String(alarm.id) === id ? { ...alarm, acknowledged_by: `token of ${role}` } : alarm));
      return { status: 204 };
    case "GET audit":
      return list([{ time: new Date(started).toISOString(), name: "admin", change: "none yet" }], url);
    default:
      return problem(404, `no such route: ${method} ${path}`);
  }
}

function stream(request, response) {
  response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  const send = (event) => response.write(`id: ${event.id}\nevent: ${event.topic}\ndata: ${JSON.stringify(event.data)}\n\n`);
  const last = Number(request.headers["last-event-id"] ?? 0);
  buffer.filter((event) => event.id > last).forEach(send);
  listeners.add(send);
  const end = setTimeout(() => response.end(), 30000);
  response.on("close", () => {
    clearTimeout(end);
    listeners.delete(send);
  });
}

async function serve(request, response, next) {
  const url = new URL(request.url, "http://localhost");
  if (!url.pathname.startsWith("/v1/")) return next();
  const role = (request.headers.authorization ?? "").replace(/^Bearer /, "");
  if (url.pathname !== "/v1/openapi.json" && !ROLES.includes(role)) {
    response.writeHead(401, { "Content-Type": "application/problem+json" });
    return response.end(JSON.stringify(problem(401, "a token is needed").body));
  }
  if (url.pathname === "/v1/events") return stream(request, response);
  if (url.pathname === "/v1/openapi.json") return response.end(JSON.stringify({ paths: {} }));
  const parts = [];
  for await (const part of request) parts.push(part);
  const own = answer(request.method, url, Buffer.concat(parts).toString(), request.headers, role);
  const headers = { "Content-Type": own.type ?? "application/json" };
  if (own.etag) headers.ETag = own.etag;
  if (own.location) headers.Location = own.location;
  response.writeHead(own.status, headers);
  response.end(own.body === undefined ? "" : typeof own.body === "string" ? own.body : JSON.stringify(own.body));
  return undefined;
}

let ticking;
function start(server) {
  server.middlewares.use((request, response, next) => void serve(request, response, next));
  ticking ??= setInterval(() => {
    emit("overview", overview());
    const ue = ues[Math.floor(Math.random() * ues.length)];
    emit("ue", { supi: ue.supi, change: "service_request" });
  }, 2000);
}

export const mock = { name: "mock", configureServer: start, configurePreviewServer: start };
