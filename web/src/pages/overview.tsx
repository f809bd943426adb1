// What the core does now: counts, rates, latencies against their objectives, traffic.
import { useEffect, useState } from "preact/hooks";
import { offers } from "../api";
import { bitRate, count, micros, percent } from "../format";
import { liveState, onTopics } from "../live";
import { useResource } from "../resource";
import { href } from "../route";
import { useStore } from "../store";
import type { Latency, Overview } from "../types";
import { Badge, Card, Failure, Meter, Spark, Table } from "../ui";

interface Sample {
  at: number;
  registered: number;
  procedures: number;
  uplink: number;
  downlink: number;
}

const SAMPLES = 300;
const SAMPLE_MS = 900;
const EVERY_MS = 2000;

// The samples outlive the page, so that the curves are there when it is opened again.
let samples: Sample[] = [];

function sample(overview: Overview): Sample[] {
  const at = Date.now();
  const last = samples.at(-1);
  if (last && at - last.at < SAMPLE_MS) return samples;
  const traffic = overview.user_plane ?? {};
  const own = {
    at,
    registered: overview.registered,
    procedures: overview.procedures_per_second ?? 0,
    uplink: traffic.uplink_octets ?? 0,
    downlink: traffic.downlink_octets ?? 0,
  };
  samples = [...samples.slice(-SAMPLES + 1), own];
  return samples;
}

function rates(all: Sample[], of: (sample: Sample) => number): number[] {
  const rate = (next: Sample, index: number) => {
    const last = all[index]!;
    return Math.max(0, (8000 * (of(next) - of(last))) / Math.max(1, next.at - last.at));
  };
  return all.slice(1).map(rate);
}

export function OverviewPage() {
  // Live, the overview is an event of each second.
  const isLive = useStore(liveState) === "live";
  const resource = useResource<Overview>("/v1/overview", [], isLive ? 0 : EVERY_MS);
  const [pushed, setPushed] = useState<Overview>();
  useEffect(() => onTopics(["overview"], (event) => setPushed(event.data as unknown as Overview)), []);
  const [shown, setShown] = useState<Overview>();
  useEffect(() => setShown(resource.data), [resource.data]);
  useEffect(() => {
    // An event may have less than the answer of the route.
    if (pushed && typeof pushed.registered === "number") setShown((old) => ({ ...old, ...pushed }));
  }, [pushed]);
  const all = shown ? sample(shown) : samples;
  const uplink = rates(all, (s) => s.uplink);
  const downlink = rates(all, (s) => s.downlink);
  return (
    <>
      <h1>Overview</h1>
      <Failure of={resource} />
      {shown ? (
        <>
          <Tiles overview={shown} all={all} />
          <div class="cards">
            <Objectives latencies={shown.latencies} />
            {shown.user_plane ? (
              <Card title="User plane" wide>
                <div class="cards">
                  <TrafficLine name="Uplink" values={uplink} packets={shown.user_plane.uplink_packets} />
                  <TrafficLine name="Downlink" values={downlink} packets={shown.user_plane.downlink_packets} />
                </div>
                <p class="quiet">{count(shown.user_plane.dropped_packets)} packets dropped since the start</p>
              </Card>
            ) : null}
          </div>
        </>
      ) : null}
    </>
  );
}

function Tiles({ overview, all }: { overview: Overview; all: Sample[] }) {
  const alarms = overview.alarms;
  const active = alarms ? alarms.critical + alarms.major + alarms.minor + alarms.warning : 0;
  const severe = alarms ? alarms.critical + alarms.major : 0;
  return (
    <ul class="tiles" aria-label="Counts">
      <Tile name="Registered UEs" value={count(overview.registered)} link={href(["ues"])}>
        <Spark values={all.map((s) => s.registered)} label="Registered UEs over the last minutes" />
      </Tile>
      <Tile name="Connected UEs" value={count(overview.connected)} />
      <Tile name="Sessions" value={count(overview.sessions)} />
      <Tile name="RAN nodes" value={count(overview.ran_nodes)} link={href(["ran-nodes"])} />
      {overview.procedures_per_second === undefined || overview.procedures_per_second === null ? null : (
        <Tile name="Procedures per second" value={count(overview.procedures_per_second)}>
          <Spark values={all.map((s) => s.procedures)} label="Procedures per second over the last minutes" />
        </Tile>
      )}
      {overview.hosts ? <Tile name="Hosts" value={count(overview.hosts)} link={href(["cluster"])} /> : null}
      {alarms && offers("GET", "/v1/alarms") ? (
        <Tile name="Active alarms" value={count(active)} link={href(["alarms"])}>
          {severe > 0 ? <Badge tone="bad">{count(severe)} critical or major</Badge> : null}
        </Tile>
      ) : null}
    </ul>
  );
}

function Tile(props: { name: string; value: string; link?: string; children?: preact.ComponentChildren }) {
  return (
    <li class="tile">
      <span class="name">{props.link ? <a href={props.link}>{props.name}</a> : props.name}</span>
      <strong data-tile={props.name}>{props.value}</strong>
      {props.children}
    </li>
  );
}

function TrafficLine({ name, values, packets }: { name: string; values: number[]; packets?: number }) {
  return (
    <div class="traffic">
      <span class="name">{name}</span>
      <strong>{bitRate(values.at(-1) ?? 0)}</strong>
      <span class="quiet">{count(packets)} packets</span>
      <Spark values={values} label={`${name} bit rate over the last minutes`} />
    </div>
  );
}

function Objectives({ latencies }: { latencies: Latency[] | undefined }) {
  const share = (row: Latency) => (row.p99_us ?? 0) / (row.objective_us || 1);
  const isMissed = (row: Latency) => !!row.objective_us && (row.p99_us ?? 0) > row.objective_us;
  return (
    <Card title="Latency against objectives" wide>
      <Table
        caption="Latency of procedures against their objectives"
        rows={latencies ?? []}
        rowKey={(row) => `${row.slice} ${row.procedure}`}
        empty="No procedure ran in the last seconds."
        columns={[
          { head: "Slice", cell: (row) => row.slice || "not known yet" },
          { head: "Procedure", cell: (row) => row.procedure },
          { head: "Procedures", cell: (row) => count(row.count), number: true },
          { head: "Median", cell: (row) => (row.count === 0 ? "–" : micros(row.p50_us)), number: true },
          { head: "99 %", cell: (row) => (row.count === 0 ? "–" : micros(row.p99_us)), number: true },
          { head: "Objective", cell: (row) => micros(row.objective_us), number: true },
          { head: "Late", cell: (row) => (row.count === 0 ? "–" : percent(row.late_ratio)), number: true },
          {
            head: "99 % of objective",
            cell: (row) =>
              row.objective_us && row.count !== 0 && row.p99_us !== null && row.p99_us !== undefined ? (
                <span class="met">
                  <Meter
                    value={share(row)}
                    max={1}
                    tone={isMissed(row) ? "bad" : "good"}
                    label={`${row.procedure}: ${percent(share(row))} of the objective`}
                  />
                  <Badge tone={isMissed(row) ? "bad" : "good"}>{isMissed(row) ? "missed" : "met"}</Badge>
                </span>
              ) : (
                "–"
              ),
          },
        ]}
      />
    </Card>
  );
}
