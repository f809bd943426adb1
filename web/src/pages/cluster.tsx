// The cluster as a map: buckets by host, and kills and takeovers as they happen.
import { useEffect, useRef, useState } from "preact/hooks";
import { may, offers, request } from "../api";
import { clock, count, percent } from "../format";
import { events } from "../live";
import { type Page, useResource } from "../resource";
import { useStore } from "../store";
import type { Balancer, Host } from "../types";
import { Action, Badge, Card, Confirm, Failure, Table, type Tone } from "../ui";
import { EventTable } from "./ues";

// A host that is lost stays on the map for this time.
const LOST_MS = 60_000;
const EVERY_MS = 1000;

interface Lost {
  host: Host;
  at: number;
}

// What the page itself saw change between two answers.
interface Change {
  time: string;
  text: string;
}

export function ClusterPage() {
  const hosts = useResource<Page<Host>>("/v1/hosts", ["host"], EVERY_MS);
  const balancers = useResource<Page<Balancer>>(offers("GET", "/v1/balancers") ? "/v1/balancers" : null, ["host"], 5000);
  const all = useStore(events).filter((event) => event.topic === "host").reverse();
  const [loads, setLoads] = useState(new Map<string, number>());
  const taken = useRef(0);
  const before = useRef<Map<string, Host> | undefined>(undefined);
  const [lost, setLost] = useState<Lost[]>([]);
  const [changes, setChanges] = useState<Change[]>([]);
  useEffect(() => {
    if (!hosts.data) return;
    const now = new Map(hosts.data.items.map((host) => [String(host.id), host]));
    const old = before.current;
    before.current = now;
    if (!old) return;
    setLoads(cpuLoads(old, now, performance.now() - taken.current));
    taken.current = performance.now();
    const found = compare(old, now);
    const time = new Date().toISOString();
    if (found.length > 0) setChanges((list) => [...found.map((text) => ({ time, text })), ...list].slice(0, 100));
    const ended = [...old.values()].filter((host) => !now.has(String(host.id)));
    setLost((list) =>
      [...list, ...ended.map((host) => ({ host, at: Date.now() }))].filter(
        (item) => Date.now() - item.at < LOST_MS && !now.has(String(item.host.id)),
      ),
    );
  }, [hosts.data]);
  const living = hosts.data?.items;
  return (
    <>
      <h1>Cluster</h1>
      <Failure of={hosts} />
      {living && living.length > 0 ? (
        <>
          <BucketMap hosts={living} lost={lost} loads={loads} />
          <Hosts hosts={living} reload={hosts.reload} />
        </>
      ) : living ? (
        <p class="quiet">This core has one process that serves UEs, and no cluster.</p>
      ) : null}
      {balancers.data && balancers.data.items.length > 0 ? (
        <Card title="Balancers" wide>
          <Table
            caption="Balancers"
            rows={balancers.data.items}
            rowKey={(balancer) => balancer.id}
            empty=""
            columns={[
              { head: "Balancer", cell: (b) => String(b.id) },
              { head: "Address", cell: (b) => <code>{b.address ?? "–"}</code> },
              { head: "State", cell: (b) => <State state={b.state} /> },
              { head: "N4", cell: (b) => (b.holds_n4 ? "exchanges PFCP with the UPFs" : "–") },
            ]}
          />
        </Card>
      ) : null}
      <Card title="Changes" wide>
        <ul class="log" role="log" aria-label="Changes of the cluster">
          {changes.map((item, index) => (
            <li key={`${item.time} ${index}`}>
              <time>{clock(item.time)}</time> {item.text}
            </li>
          ))}
        </ul>
        {changes.length === 0 && all.length === 0 ? <p class="quiet">Nothing has changed since this page is open.</p> : null}
        {all.length > 0 ? <EventTable rows={all} caption="Events of hosts" empty="" /> : null}
      </Card>
    </>
  );
}

function held(host: Host): string {
  const isMember = host.buckets !== undefined && host.buckets !== null;
  return isMember ? `${count(host.buckets)} buckets` : `${count(host.ues)} UEs`;
}

function compare(old: Map<string, Host>, now: Map<string, Host>): string[] {
  const changes: string[] = [];
  for (const [id, host] of old) {
    const next = now.get(id);
    if (!next && isDrained(host)) changes.push(`Host ${id} has left.`);
    else if (!next) changes.push(`Host ${id} is lost; it had ${held(host)}.`);
    else if ((next.state ?? "") !== (host.state ?? "")) changes.push(`Host ${id}: ${host.state} → ${next.state}.`);
    if (next && (next.buckets ?? 0) !== (host.buckets ?? 0)) {
      const moved = (next.buckets ?? 0) - (host.buckets ?? 0);
      changes.push(`Host ${id} ${moved > 0 ? "takes over" : "hands over"} ${count(Math.abs(moved))} buckets.`);
    }
  }
  for (const [id, host] of now) {
    if (!old.has(id)) changes.push(`Host ${id} joins with ${held(host)}.`);
  }
  return changes;
}

// CPUs in use since the answer before.
function cpuLoads(old: Map<string, Host>, now: Map<string, Host>, elapsedMs: number): Map<string, number> {
  const loads = new Map<string, number>();
  for (const [id, host] of now) {
    const last = old.get(id)?.cpu_us;
    if (typeof last !== "number" || typeof host.cpu_us !== "number") continue;
    loads.set(id, Math.max(0, host.cpu_us - last) / (1000 * Math.max(1, elapsedMs)));
  }
  return loads;
}

function tone(state: string | undefined): Tone {
  if (state === undefined || ["up", "serving", "active", "ready", "member", "alive"].includes(state)) return "good";
  return ["dead", "lost", "ended", "down", "failed"].includes(state) ? "bad" : "warn";
}

function State({ state }: { state: string | undefined }) {
  return <Badge tone={tone(state)}>{state ?? "serving"}</Badge>;
}

const WIDTH = 1000;

// A host has the same colour as long as it lives.
function colour(host: Host): string {
  return `part-${(Number(host.id) || 0) % 6}`;
}

// A host without buckets had been drained.
function isDrained(host: Host): boolean {
  return host.buckets === 0;
}

function BucketMap({ hosts, lost, loads }: { hosts: Host[]; lost: Lost[]; loads: Map<string, number> }) {
  // Shards of one process tree have UEs and no buckets of their own in the answer.
  const byBuckets = hosts.some((host) => host.buckets);
  const size = (host: Host) => (byBuckets ? host.buckets : host.ues) ?? 0;
  const total = hosts.reduce((sum, host) => sum + size(host), 0);
  let x = 0;
  const parts = hosts.map((host) => {
    const width = total > 0 ? (WIDTH * size(host)) / total : 0;
    const part = { host, x, width };
    x += width;
    return part;
  });
  const unit = byBuckets ? "buckets" : "UEs";
  const text = hosts.map((host) => `host ${host.id}: ${count(size(host))} ${unit}`).join("; ");
  return (
    <Card title="Who serves" wide>
      <svg class="strip" viewBox={`0 0 ${WIDTH} 40`} preserveAspectRatio="none" role="img" aria-label={text}>
        {parts.map(({ host, x, width }) => (
          <rect key={host.id} class={colour(host)} x={x} width={Math.max(0, width - 2)} height="40" />
        ))}
      </svg>
      <ul class="hosts" aria-label="Hosts">
        {hosts.map((host) => (
          <li key={host.id} class="host" data-host={host.id}>
            <strong>
              <span class={`key ${colour(host)}`} aria-hidden="true" />
              Host {host.id}
            </strong>
            <State state={host.state} />
            {host.buckets === undefined || host.buckets === null ? null : <span>{count(host.buckets)} buckets</span>}
            {host.ues === undefined || host.ues === null ? null : <span>{count(host.ues)} UEs</span>}
            {loads.has(String(host.id)) ? <span>CPU {percent(loads.get(String(host.id)))}</span> : null}
            {host.machine ? <span>on {host.machine}</span> : null}
          </li>
        ))}
        {lost.map(({ host }) => (
          <li key={`lost ${host.id}`} class="host lost" data-lost={host.id}>
            <strong>Host {host.id}</strong>
            <Badge tone={isDrained(host) ? "plain" : "bad"}>{isDrained(host) ? "left" : "lost"}</Badge>
            <span>had {held(host)}</span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Hosts({ hosts, reload }: { hosts: Host[]; reload: () => void }) {
  const [draining, setDraining] = useState<Host>();
  const can = (verb: string) => may("operate") && offers("POST", `/v1/hosts/{id}/${verb}`);
  const has = (field: keyof Host) => hosts.some((host) => host[field] !== undefined && host[field] !== null);
  const order = (host: Host, verb: string) =>
    request(`/v1/hosts/${encodeURIComponent(String(host.id))}/${verb}`, { method: "POST" });
  const isCordoned = (host: Host) => host.state === "cordoned";
  return (
    <Card title="Hosts" wide>
      <Table
        caption="Hosts"
        rows={hosts}
        rowKey={(host) => host.id}
        empty=""
        columns={[
          { head: "Host", cell: (host) => String(host.id) },
          { head: "State", cell: (host) => <State state={host.state} /> },
          has("address") && { head: "Address", cell: (host: Host) => <code>{host.address || "–"}</code> },
          has("machine") && { head: "Machine", cell: (host: Host) => host.machine ?? "–" },
          has("buckets") && { head: "Buckets", cell: (host: Host) => count(host.buckets), number: true },
          has("replicas") && { head: "Replicated buckets", cell: (host: Host) => count(host.replicas), number: true },
          has("ues") && { head: "UEs", cell: (host: Host) => count(host.ues), number: true },
          has("shard") && { head: "Shard", cell: (host: Host) => String(host.shard ?? "–") },
          (can("drain") || can("cordon")) && {
            head: "Actions",
            cell: (host: Host) => (
              <div class="buttons">
                {can("cordon") && !isCordoned(host) ? (
                  <Action
                    label={`Cordon host ${host.id}`}
                    run={() => order(host, "cordon").then(reload)}
                    done={`Host ${host.id} gets no more buckets.`}
                  >
                    Cordon
                  </Action>
                ) : null}
                {can("uncordon") && isCordoned(host) ? (
                  <Action
                    label={`Uncordon host ${host.id}`}
                    run={() => order(host, "uncordon").then(reload)}
                    done={`Host ${host.id} may get buckets again.`}
                  >
                    Uncordon
                  </Action>
                ) : null}
                {can("drain") ? (
                  <button type="button" aria-label={`Drain host ${host.id}`} onClick={() => setDraining(host)}>
                    Drain
                  </button>
                ) : null}
              </div>
            ),
          },
        ]}
      />
      {draining ? (
        <Confirm
          title={`Drain host ${draining.id}?`}
          text="The cluster migrates its UEs to other hosts. The host then leaves the cluster and its process ends."
          action="Drain"
          done={`Host ${draining.id} is being drained.`}
          run={() => order(draining, "drain")}
          onClose={() => setDraining(undefined)}
        />
      ) : null}
    </Card>
  );
}
