// Alarms, with their acknowledgement, and the audit log.
import { may, offers, request } from "../api";
import { time } from "../format";
import { Pager, useList } from "../pager";
import { navigate, route } from "../route";
import { useStore } from "../store";
import type { Alarm } from "../types";
import { Action, Badge, Check, Failure, Table, type Tone } from "../ui";

function tone(severity: string): Tone {
  return severity === "critical" || severity === "major" ? "bad" : severity === "cleared" ? "good" : "warn";
}

export function AlarmsPage() {
  const { query } = useStore(route);
  const all = query.get("all") === "true";
  const list = useList<Alarm>("/v1/alarms", { active: all ? "" : "true" }, ["alarm"]);
  const canAcknowledge = may("operate") && offers("POST", "/v1/alarms/{id}/acknowledge");
  const acknowledge = async (alarm: Alarm) => {
    await request(`/v1/alarms/${encodeURIComponent(String(alarm.id))}/acknowledge`, { method: "POST" });
    list.reload();
  };
  return (
    <>
      <h1>Alarms</h1>
      <Check
        label="Show cleared alarms too"
        checked={all}
        onChange={(checked) => navigate(["alarms"], { all: checked ? "true" : "" })}
      />
      <Failure of={list} />
      <Table
        caption="Alarms"
        rows={list.items}
        rowKey={(alarm) => alarm.id}
        empty={all ? "There was no alarm." : "No alarm is active."}
        columns={[
          { head: "Severity", cell: (alarm) => <Badge tone={tone(alarm.severity)}>{alarm.severity}</Badge> },
          { head: "Kind", cell: (alarm) => alarm.kind.replaceAll("_", " ") },
          { head: "Object", cell: (alarm) => alarm.object },
          { head: "Details", cell: (alarm) => alarm.detail },
          { head: "Raised", cell: (alarm) => time(alarm.raised_at) },
          all && { head: "Cleared", cell: (alarm: Alarm) => time(alarm.cleared_at) },
          {
            head: "Acknowledged",
            cell: (alarm) =>
              alarm.acknowledged_by ??
              (canAcknowledge && alarm.severity !== "cleared" ? (
                <Action
                  label={`Acknowledge ${alarm.kind.replaceAll("_", " ")} of ${alarm.object}`}
                  run={() => acknowledge(alarm)}
                  done="The alarm is acknowledged."
                >
                  Acknowledge
                </Action>
              ) : (
                "no"
              )),
          },
        ]}
      />
      <Pager list={list} things="alarms" />
    </>
  );
}

type Entry = Record<string, unknown>;

export function AuditPage() {
  const list = useList<Entry>("/v1/audit", {}, ["ue", "alarm", "host"]);
  const text = (value: unknown) =>
    value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);
  const known = ["time", "at"];
  const names = [...new Set((list.items ?? []).flatMap((entry) => Object.keys(entry)))];
  return (
    <>
      <h1>Audit log</h1>
      <Failure of={list} />
      <Table
        caption="Changes that users of the API made"
        rows={list.items}
        rowKey={(_, index) => index}
        empty="Nothing was changed."
        columns={names.map((name) => ({
          head: name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " "),
          cell: (entry: Entry) => (known.includes(name) ? time(text(entry[name])) : text(entry[name])),
        }))}
      />
      <Pager list={list} things="changes" />
    </>
  );
}
