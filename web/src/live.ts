// Server-sent events, read by fetch: EventSource cannot send the bearer token in a header.
import { headers, offers, session, signOut } from "./api";
import { Store } from "./store";

export interface Event {
  id: string;
  topic: string;
  // Empty: the event is from the server's buffer, and has no time.
  time: string;
  data: Record<string, unknown>;
}

export type State = "connecting" | "live" | "polling";

export const liveState = new Store<State>("connecting");
// Newest last.
export const events = new Store<Event[]>([]);

const EVENTS_MAX = 2000;
const BATCH_MS = 250;
const QUIET_MS = 2500;
// Fields with the time of an event, the best first.
const TIMES = ["time", "at", "cleared_at", "raised_at"];
// The buffer of the server arrives within this time after the first connection.
const BUFFERED_MS = 1000;
const RETRY_MS = [500, 1000, 2000, 5000, 10000];

type Listener = (event: Event) => void;
const listeners = new Map<string, Set<Listener>>();

export function onTopics(topics: readonly string[], listener: Listener): () => void {
  for (const topic of topics) {
    const set = listeners.get(topic) ?? new Set();
    listeners.set(topic, set.add(listener));
  }
  return () => {
    for (const topic of topics) listeners.get(topic)?.delete(listener);
  };
}

let running: AbortController | undefined;
let lastId = "";
let connectedAt = 0;

export function startLive(): void {
  stopLive();
  if (!offers("GET", "/v1/events")) return liveState.set("polling");
  running = new AbortController();
  void follow(running.signal);
}

export function stopLive(): void {
  running?.abort();
  running = undefined;
  lastId = "";
  pending = [];
  events.set([]);
  liveState.set("connecting");
}

async function follow(signal: AbortSignal): Promise<void> {
  let failures = 0;
  let seen = Date.now();
  while (!signal.aborted) {
    try {
      // The first connection asks for what the server still has.
      const head = { ...headers(), Accept: "text/event-stream", "Last-Event-ID": lastId || "0" };
      const answer = await fetch("/v1/events", { headers: head, signal, cache: "no-store", credentials: "omit" });
      if (answer.status === 401 && session.value) return signOut("The server no longer accepts the token.");
      if ([403, 404, 405, 501].includes(answer.status)) return liveState.set("polling");
      if (!answer.ok || !answer.body) throw new Error(`status ${answer.status}`);
      if (lastId === "") connectedAt = Date.now();
      liveState.set("live");
      failures = 0;
      await read(answer.body, () => (seen = Date.now()));
      seen = Date.now();
    } catch {
      if (signal.aborted) return;
      failures += 1;
    }
    // Servers end long connections. Only a longer gap is shown.
    if (failures > 1 || Date.now() - seen > QUIET_MS) liveState.set("connecting");
    const pause = failures === 0 ? 50 : RETRY_MS[Math.min(failures, RETRY_MS.length) - 1]!;
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

async function read(body: ReadableStream<Uint8Array>, alive: () => void): Promise<void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let [topic, id, data] = ["message", "", [] as string[]];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    const lines = (rest + decoder.decode(value, { stream: true })).split(/\r\n|\n|\r/);
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        if (data.length > 0) dispatch(topic, id, data.join("\n"));
        [topic, id, data] = ["message", "", []];
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const text = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") topic = text;
      else if (field === "id") id = text;
      else if (field === "data") data.push(text);
    }
  }
}

// Events of many UEs are shown in batches.
let pending: Event[] = [];

function remember(event: Event): void {
  if (pending.push(event) > 1) return;
  setTimeout(() => {
    events.set([...events.value, ...pending].slice(-EVENTS_MAX));
    pending = [];
  }, BATCH_MS);
}

function dispatch(topic: string, id: string, text: string): void {
  if (id) lastId = id;
  let data: Record<string, unknown>;
  try {
    data = JSON.parse(text);
  } catch {
    return;
  }
  const own = TIMES.map((name) => data[name]).find((value) => typeof value === "string");
  const arrival = Date.now() - connectedAt < BUFFERED_MS ? "" : new Date().toISOString();
  const event = { id, topic, data, time: (own as string | undefined) ?? arrival };
  // An overview arrives every second and says nothing about the past.
  if (topic !== "overview") remember(event);
  for (const listener of [...(listeners.get(topic) ?? [])]) listener(event);
}
