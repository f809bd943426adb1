// RAN nodes that are set up, and their events.
import { count, time } from "../format";
import { events } from "../live";
import { Pager, useList } from "../pager";
import { href } from "../route";
import { useStore } from "../store";
import type { RanNode } from "../types";
import { Card, Failure, Table } from "../ui";
import { EventTable } from "./ues";

export function RanNodesPage() {
  const list = useList<RanNode>("/v1/ran-nodes", {}, ["ran_node"], 5000);
  const all = useStore(events);
  const own = all.filter((event) => event.topic === "ran_node").reverse();
  return (
    <>
      <h1>RAN nodes</h1>
      <Failure of={list} />
      <Table
        caption="RAN nodes"
        rows={list.items}
        rowKey={(node) => node.id}
        empty="No RAN node is set up."
        columns={[
          { head: "Name", cell: (node) => node.name || "–" },
          { head: "ID", cell: (node) => <code>{node.id}</code> },
          { head: "Kind", cell: (node) => node.kind },
          { head: "Address", cell: (node) => <code>{node.address ?? "–"}</code> },
          { head: "Tracking areas", cell: (node) => (node.tracking_areas ?? []).join(", ") || "–" },
          {
            head: "Connected UEs",
            cell: (node) => <a href={href(["ues"], { ran_node: node.id })}>{count(node.connected_ues)}</a>,
            number: true,
          },
          { head: "Since", cell: (node) => time(node.since) },
        ]}
      />
      <Pager list={list} things="RAN nodes" />
      {own.length > 0 ? (
        <Card title="Recent events" wide>
          <EventTable rows={own} caption="Events of RAN nodes" empty="" />
        </Card>
      ) : null}
    </>
  );
}
