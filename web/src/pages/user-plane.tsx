// User plane: UPFs, slices with their workers, address pools.
import { offers } from "../api";
import { count, octets, percent } from "../format";
import { type Page, useResource } from "../resource";
import type { Traffic, Upf } from "../types";
import { Badge, Card, Failure, Meter, Table } from "../ui";

interface Worker {
  number: number;
  core?: number | null;
  users: number;
  traffic: Traffic;
}

interface PlaneSlice {
  slice: string;
  snssai?: string | null;
  users: number;
  workers: Worker[];
}

interface Plane {
  moved: number;
  slices: PlaneSlice[];
}

interface Pool {
  cidr: string;
  used: number;
  size: number;
}

interface DataNetwork {
  dnn: string;
  pools?: Pool[];
  upfs?: string[];
}

const EVERY_MS = 2000;

export function UserPlanePage() {
  const upfs = useResource<Page<Upf>>(offers("GET", "/v1/upfs") ? "/v1/upfs" : null, [], EVERY_MS);
  const plane = useResource<Plane>(offers("GET", "/v1/user-plane") ? "/v1/user-plane" : null, [], EVERY_MS);
  const networks = useResource<Page<DataNetwork>>(offers("GET", "/v1/data-networks") ? "/v1/data-networks" : null, [], 5000);
  const metrics = useResource<string>("/metrics", [], 5000);
  const places = decided(metrics.data ?? "");
  return (
    <>
      <h1>User plane</h1>
      <Failure of={upfs} />
      {upfs.data ? <Upfs upfs={upfs.data.items} /> : null}
      {places.length > 0 ? <Decisions places={places} /> : null}
      {plane.data && plane.data.slices.length > 0 ? <Slices slices={plane.data.slices} /> : null}
      {networks.data && networks.data.items.length > 0 ? <Networks networks={networks.data.items} /> : null}
    </>
  );
}

function Upfs({ upfs }: { upfs: Upf[] }) {
  return (
    <Card title="UPFs" wide>
      <Table
        caption="UPFs"
        rows={upfs}
        rowKey={(upf, index) => `${upf.name} ${index}`}
        empty="No UPF is configured."
        columns={[
          { head: "Name", cell: (upf) => upf.name || "–" },
          { head: "Node ID", cell: (upf) => <code>{upf.node || "–"}</code> },
          {
            head: "PFCP association",
            cell: (upf) => <Badge tone={upf.associated ? "good" : "bad"}>{upf.associated ? "up" : "down"}</Badge>,
          },
          { head: "Sessions", cell: (upf) => count(upf.user_plane?.sessions), number: true },
          { head: "Uplink packets", cell: (upf) => count(upf.user_plane?.traffic.uplink_packets), number: true },
          { head: "Uplink", cell: (upf) => octets(upf.user_plane?.traffic.uplink_octets), number: true },
          { head: "Downlink packets", cell: (upf) => count(upf.user_plane?.traffic.downlink_packets), number: true },
          { head: "Downlink", cell: (upf) => octets(upf.user_plane?.traffic.downlink_octets), number: true },
          { head: "Dropped", cell: (upf) => count(upf.user_plane?.traffic.dropped_packets), number: true },
        ]}
      />
    </Card>
  );
}

// The places that decide about packets of sessions with flow rules, as the metrics name them.
const PLACES: Record<string, string> = { fast: "in the kernel (XDP)", slow: "in the process" };

interface Decided {
  place: string;
  sessions: number;
  packets: number;
}

function decided(metrics: string): Decided[] {
  const value = (name: string, path: string) => {
    const line = metrics.split("\n").find((text) => text.startsWith(`${name}{`) && text.includes(`path="${path}"`));
    return line === undefined ? undefined : Number(line.split(" ").at(-1));
  };
  return Object.entries(PLACES).flatMap(([path, place]) => {
    const sessions = value("vireo_upf_flow_rule_sessions", path);
    const packets = value("vireo_upf_flow_rule_packets_total", path);
    return sessions === undefined && packets === undefined ? [] : [{ place, sessions: sessions ?? 0, packets: packets ?? 0 }];
  });
}

function Decisions({ places }: { places: Decided[] }) {
  const total = places.reduce((sum, place) => sum + place.packets, 0);
  return (
    <Card title="Where flow rules are decided" wide>
      <Table
        caption="Sessions with flow rules by the place that decides"
        rows={places}
        rowKey={(row) => row.place}
        empty=""
        columns={[
          { head: "Place", cell: (row) => row.place },
          { head: "Sessions", cell: (row) => count(row.sessions), number: true },
          { head: "Packets", cell: (row) => count(row.packets), number: true },
          {
            head: "Share of packets",
            cell: (row) => (
              <Meter value={row.packets} max={total} label={`${row.place}: ${percent(total > 0 ? row.packets / total : 0)}`} />
            ),
          },
        ]}
      />
    </Card>
  );
}

function Slices({ slices }: { slices: PlaneSlice[] }) {
  const rows = slices.flatMap((slice) => slice.workers.map((worker) => ({ slice, worker })));
  return (
    <Card title="Slices and data workers" wide>
      <Table
        caption="Slices of the user plane and their data workers"
        rows={rows}
        rowKey={(_, index) => index}
        empty="The slices have no data workers."
        columns={[
          { head: "Slice", cell: ({ slice }) => slice.slice },
          { head: "S-NSSAI", cell: ({ slice }) => slice.snssai ?? "–" },
          { head: "Worker", cell: ({ worker }) => String(worker.number), number: true },
          { head: "CPU", cell: ({ worker }) => String(worker.core ?? "–"), number: true },
          { head: "Sessions", cell: ({ worker }) => count(worker.users), number: true },
          { head: "Uplink packets", cell: ({ worker }) => count(worker.traffic.uplink_packets), number: true },
          { head: "Uplink", cell: ({ worker }) => octets(worker.traffic.uplink_octets), number: true },
          { head: "Downlink packets", cell: ({ worker }) => count(worker.traffic.downlink_packets), number: true },
          { head: "Downlink", cell: ({ worker }) => octets(worker.traffic.downlink_octets), number: true },
          { head: "Dropped", cell: ({ worker }) => count(worker.traffic.dropped_packets), number: true },
        ]}
      />
    </Card>
  );
}

function Networks({ networks }: { networks: DataNetwork[] }) {
  const rows = networks.flatMap((network) => (network.pools ?? []).map((pool) => ({ network, pool })));
  return (
    <Card title="Address pools of data networks" wide>
      <Table
        caption="Address pools of data networks"
        rows={rows}
        rowKey={({ network, pool }) => `${network.dnn} ${pool.cidr}`}
        empty="No data network has a pool."
        columns={[
          { head: "Data network", cell: ({ network }) => network.dnn },
          { head: "Pool", cell: ({ pool }) => <code>{pool.cidr}</code> },
          { head: "Used", cell: ({ pool }) => count(pool.used), number: true },
          { head: "Size", cell: ({ pool }) => count(pool.size), number: true },
          {
            head: "Share",
            cell: ({ pool }) => (
              <Meter
                value={pool.used}
                max={pool.size}
                tone={pool.used > 0.9 * pool.size ? "bad" : "good"}
                label={`${pool.cidr}: ${percent(pool.size > 0 ? pool.used / pool.size : 0)} used`}
              />
            ),
          },
          { head: "UPFs", cell: ({ network }) => (network.upfs ?? []).join(", ") || "–" },
        ]}
      />
    </Card>
  );
}
