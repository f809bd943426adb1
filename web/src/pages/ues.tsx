// UEs: search, and one UE with its sessions, its events and what may be done to it.
import { useEffect, useRef, useState } from "preact/hooks";
import { may, offers, request, takes } from "../api";
import { bitRate, clock, count, octets } from "../format";
import { type Event, events } from "../live";
import { Pager, useList } from "../pager";
import { type Page, useResource } from "../resource";
import { navigate, href, route } from "../route";
import { useStore } from "../store";
import type { PduSession, Ue, Upf } from "../types";
import { Action, Badge, Card, Confirm, Facts, Failure, Input, Select, SupiLink, Table } from "../ui";

const KEYS: [string, string][] = [
  ["supi", "SUPI"],
  ["gpsi", "GPSI (MSISDN)"],
  ["address", "Address"],
  ["guti", "GUTI"],
  ["ran_node", "ID of the RAN node"],
  ["state", "State"],
];
const STATES = ["registered", "registering", "deregistered", "connected", "idle"];

export function UesPage() {
  const { query } = useStore(route);
  const filters: Record<string, string> = {};
  for (const [key] of KEYS) filters[key] = query.get(key) ?? "";
  const list = useList<Ue>("/v1/ues", filters, ["ue"], 5000);
  return (
    <>
      <h1>UEs</h1>
      <Search filters={filters} />
      <Failure of={list} />
      <Table
        caption="UEs"
        rows={list.items}
        rowKey={(ue, index) => ue.supi || ue.guti || index}
        empty="No UE matches."
        columns={[
          { head: "SUPI", cell: (ue) => <SupiLink part="ues" supi={ue.supi} /> },
          { head: "Access", cell: (ue) => access(ue.rat) },
          { head: "State", cell: (ue) => <StateBadge ue={ue} /> },
          { head: "Connection", cell: (ue) => (ue.connected ? "connected" : "idle") },
          { head: "RAN node", cell: (ue) => ue.ran_node ?? "–" },
          { head: "Sessions", cell: (ue) => count(sessionCount(ue)), number: true },
          { head: "GUTI", cell: (ue) => <code>{ue.guti || "–"}</code> },
        ]}
      />
      <Pager list={list} things="UEs" />
    </>
  );
}

// One key at a time: each has an index in the core.
function Search({ filters }: { filters: Record<string, string> }) {
  const keys = KEYS.filter(([name]) => takes("/v1/ues", name));
  const used = keys.find(([name]) => filters[name])?.[0];
  const [key, setKey] = useState(used ?? "supi");
  const [text, setText] = useState(used ? (filters[used] ?? "") : "");
  return (
    <search>
      <form
        class="row"
        onSubmit={(event) => {
          event.preventDefault();
          navigate(["ues"], { [key]: text.trim() });
        }}
      >
        <Select
          label="Search by"
          value={key}
          options={keys}
          onChange={(name) => {
            setKey(name);
            setText("");
          }}
        />
        {key === "state" ? (
          <Select
            label="Value"
            value={text}
            options={[["", "any"], ...STATES.map((state) => [state, state] as const)]}
            onChange={setText}
          />
        ) : (
          <Input label="Value" value={text} onInput={setText} />
        )}
        <button type="submit" class="main">
          Search
        </button>
      </form>
    </search>
  );
}

function access(rat: string): string {
  return rat === "eps" ? "4G" : rat === "nr" ? "5G" : rat;
}

function sessionCount(ue: Ue): number {
  return typeof ue.sessions === "number" ? ue.sessions : ue.sessions.length;
}

function StateBadge({ ue }: { ue: Ue }) {
  return <Badge tone={ue.state.toLowerCase() === "registered" ? "good" : "plain"}>{ue.state.toLowerCase()}</Badge>;
}

export function UePage({ supi }: { supi: string }) {
  const ue = useResource<Ue>(`/v1/ues/${encodeURIComponent(supi)}`, ["ue", "session"], 2000);
  const data = ue.data;
  return (
    <>
      <nav aria-label="Breadcrumb">
        <a href={href(["ues"])}>UEs</a>
      </nav>
      <h1>UE {supi}</h1>
      <Failure of={ue} />
      {data ? (
        <div class="cards">
          <Card title="Registration" aside={may("operate") ? <UeActions ue={data} /> : null}>
            <Facts
              items={[
                ["State", <StateBadge ue={data} />],
                ["Connection", data.connected ? "connected" : "idle"],
                ["Access", access(data.rat)],
                ["RAN node", [data.ran_node_name, data.ran_node].filter((name) => name).join(", ")],
                ["Tracking area", data.tracking_area],
                ["GUTI", data.guti ? <code>{data.guti}</code> : ""],
                ["MSISDN", data.msisdn ? <code>{data.msisdn}</code> : ""],
                ["Host", data.host === null || data.host === undefined ? "" : String(data.host)],
              ]}
            />
          </Card>
          <Sessions sessions={Array.isArray(data.sessions) ? data.sessions : []} />
        </div>
      ) : null}
      <History supi={supi} ue={data} />
    </>
  );
}

function UeActions({ ue }: { ue: Ue }) {
  const [asking, setAsking] = useState(false);
  const path = `/v1/ues/${encodeURIComponent(ue.supi)}`;
  const deregister = (reregister: boolean) =>
    request(`${path}/deregister`, { method: "POST", json: { reregister } });
  return (
    <div class="buttons">
      {offers("POST", "/v1/ues/{supi}/deregister") ? (
        <>
          <Action run={() => deregister(true)} done={`${ue.supi} is requested to register again.`}>
            Register again
          </Action>
          <button type="button" class="danger" onClick={() => setAsking(true)}>
            Deregister
          </button>
        </>
      ) : null}
      {offers("POST", "/v1/ues/{supi}/relocate") && offers("GET", "/v1/upfs") ? <Relocate path={path} /> : null}
      {asking ? (
        <Confirm
          title="Deregister the UE?"
          text={`${ue.supi} loses its sessions. It may register again by itself.`}
          action="Deregister"
          done={`${ue.supi} is being deregistered.`}
          run={() => deregister(false)}
          onClose={() => setAsking(false)}
        />
      ) : null}
    </div>
  );
}

function Relocate({ path }: { path: string }) {
  const upfs = useResource<Page<Upf>>("/v1/upfs", []);
  const [upf, setUpf] = useState("");
  const names = upfs.data?.items.map((item) => item.name).filter((name) => name !== "") ?? [];
  if (names.length < 2) return null;
  const target = upf || names[0]!;
  return (
    <span class="row">
      <Select label="UPF" value={target} options={names.map((name) => [name, name] as const)} onChange={setUpf} />
      <Action
        run={() => request(`${path}/relocate`, { method: "POST", json: { upf: target } })}
        done={`The sessions move to ${target}.`}
      >
        Move sessions
      </Action>
    </span>
  );
}

function Sessions({ sessions }: { sessions: PduSession[] }) {
  const has = (field: keyof PduSession) => sessions.some((s) => s[field] !== undefined && s[field] !== null);
  return (
    <Card title="Sessions" wide>
      <Table
        caption="Sessions of the UE"
        rows={sessions}
        rowKey={(session) => session.id}
        empty="The UE has no session."
        columns={[
          { head: "ID", cell: (s) => String(s.id) },
          { head: "Data network", cell: (s) => s.dnn },
          { head: "Slice", cell: (s) => s.slice || "–" },
          { head: "Address", cell: (s) => <code>{s.address ?? "–"}</code> },
          has("ipv6") && { head: "IPv6", cell: (s: PduSession) => <code>{s.ipv6 ?? "–"}</code> },
          has("state") && {
            head: "State",
            cell: (s: PduSession) => (s.relocating ? "relocating" : (s.state ?? "–").toLowerCase()),
          },
          { head: "UPF", cell: (s) => s.upf || "–" },
          has("qfi") && { head: "Flow (QFI)", cell: (s: PduSession) => s.qfi ?? "–", number: true },
          has("five_qi") && { head: "5QI", cell: (s: PduSession) => s.five_qi ?? "–", number: true },
          has("uplink_bps") && { head: "Limit up", cell: (s: PduSession) => bitRate(s.uplink_bps), number: true },
          has("downlink_bps") && { head: "Limit down", cell: (s: PduSession) => bitRate(s.downlink_bps), number: true },
          has("uplink_octets") && { head: "Uplink", cell: (s: PduSession) => octets(s.uplink_octets), number: true },
          has("downlink_octets") && {
            head: "Downlink",
            cell: (s: PduSession) => octets(s.downlink_octets),
            number: true,
          },
        ]}
      />
    </Card>
  );
}

// What differs between two answers about a UE.
function compare(old: Ue, now: Ue): string[] {
  const sessions = (ue: Ue) => (Array.isArray(ue.sessions) ? ue.sessions : []);
  const text = (value: unknown) => (value === undefined || value === null || value === "" ? "none" : String(value));
  const fields: [string, (ue: Ue) => unknown][] = [
    ["State", (ue) => ue.state],
    ["Connection", (ue) => (ue.connected ? "connected" : "idle")],
    ["RAN node", (ue) => ue.ran_node],
    ["Host", (ue) => ue.host],
    ["GUTI", (ue) => ue.guti],
    ["Sessions", (ue) => sessions(ue).map((session) => `${session.id} ${session.address ?? ""}`.trim()).join(", ")],
    ["UPF", (ue) => sessions(ue).map((session) => session.upf ?? "").join(", ")],
  ];
  const changed = fields.filter(([, field]) => text(field(old)) !== text(field(now)));
  return changed.map(([name, field]) => `${name}: ${text(field(old))} → ${text(field(now))}`);
}

// Events of the server, and what the page itself has seen since it is open.
function History({ supi, ue }: { supi: string; ue: Ue | undefined }) {
  const all = useStore(events);
  const own = all.filter((event) => event.data["supi"] === supi).reverse();
  const last = useRef(ue);
  const [changes, setChanges] = useState<{ time: string; text: string }[]>([]);
  useEffect(() => {
    if (last.current && ue) {
      const time = new Date().toISOString();
      const found = compare(last.current, ue).map((text) => ({ time, text }));
      if (found.length > 0) setChanges((list) => [...found, ...list].slice(0, 100));
    }
    last.current = ue ?? last.current;
  }, [ue]);
  return (
    <Card title="History" wide>
      {own.length > 0 ? <EventTable rows={own} caption="Events of the UE" empty="" /> : null}
      <ul class="log" role="log" aria-label="Changes since this page is open">
        {changes.map((change, index) => (
          <li key={`${change.time} ${index}`}>
            <time>{clock(change.time)}</time> {change.text}
          </li>
        ))}
      </ul>
      {changes.length + own.length === 0 ? <p class="quiet">Nothing has changed since this page is open.</p> : null}
    </Card>
  );
}

// Fields that every event has, or that the table shows itself.
const NAMED = new Set(["time", "at", "supi", "event", "kind", "change"]);

export function EventTable({ rows, caption, empty }: { rows: Event[]; caption: string; empty: string }) {
  const name = (event: Event) => {
    const own = ["change", "kind", "event"].map((field) => event.data[field]).find((text) => typeof text === "string");
    return own === undefined ? event.topic : String(own);
  };
  const rest = (event: Event) => {
    const pairs = Object.entries(event.data).filter(([field, value]) => !NAMED.has(field) && value !== null);
    return pairs.map(([field, value]) => `${field} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
  };
  return (
    <Table
      caption={caption}
      rows={rows.slice(0, 200)}
      rowKey={(event, index) => `${event.id} ${index}`}
      empty={empty}
      columns={[
        { head: "Time", cell: (event) => clock(event.time) },
        { head: "Event", cell: (event) => name(event).replaceAll("_", " ") },
        { head: "Details", cell: (event) => rest(event) },
      ]}
    />
  );
}
