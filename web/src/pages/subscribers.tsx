// Subscribers: list, form, removal, import of a file with a preview of its errors.
import { useState } from "preact/hooks";
import { may, offers, request, takes } from "../api";
import { Pager, useList } from "../pager";
import { useResource } from "../resource";
import { navigate, href, route } from "../route";
import { useStore } from "../store";
import type { Subscriber } from "../types";
import { Confirm, Failure, Input, SupiLink, Table } from "../ui";
import { ImportDialog } from "./import";
import { SubscriberForm } from "./subscriber-form";

export function identity(subscriber: Subscriber): string {
  return subscriber.supi ?? `imsi-${subscriber.imsi}`;
}

function slices(subscriber: Subscriber): string {
  const all = subscriber.subscription?.slices ?? [];
  const names = all.map(({ snssai }) => (`${snssai.sst}${snssai.sd === null ? "" : `-${sd(snssai.sd)}`}`));
  return names.join(", ") || "–";
}

// A slice differentiator as 6 hexadecimal digits.
export function sd(value: number): string {
  return value.toString(16).padStart(6, "0");
}

function dnns(subscriber: Subscriber): string {
  const names = (subscriber.subscription?.slices ?? []).flatMap((slice) => slice.dnns.map((dnn) => dnn.dnn));
  return [...new Set(names)].join(", ") || "–";
}

export function SubscribersPage() {
  const { query } = useStore(route);
  const filters: Record<string, string> = {};
  for (const name of ["supi_prefix", "gpsi", "dnn", "slice"]) filters[name] = query.get(name) ?? "";
  const list = useList<Subscriber>("/v1/subscribers", filters, []);
  const [importing, setImporting] = useState(false);
  const hasMsisdn = list.items?.some((s) => s.msisdn) === true;
  const canAdd = may("admin") && offers("POST", "/v1/subscribers");
  const canImport = may("admin") && offers("POST", "/v1/subscribers/import");
  return (
    <>
      <div class="head">
        <h1>Subscribers</h1>
        <div class="buttons">
          {canAdd ? (
            <a class="button main" href={href(["subscribers", "new"])}>
              Add subscriber
            </a>
          ) : null}
          {canImport ? (
            <button type="button" onClick={() => setImporting(true)}>
              Import file
            </button>
          ) : null}
        </div>
      </div>
      <Search filters={filters} />
      <Failure of={list} />
      <Table
        caption="Subscribers"
        rows={list.items}
        rowKey={identity}
        empty="No subscriber matches."
        columns={[
          { head: "SUPI", cell: (s) => <SupiLink part="subscribers" supi={identity(s)} /> },
          hasMsisdn && { head: "MSISDN", cell: (s: Subscriber) => s.msisdn ?? "–" },
          { head: "Slices", cell: slices },
          { head: "Data networks", cell: dnns },
          { head: "Access", cell: (s) => (s.subscription?.only ? `${s.subscription.only} only`.toUpperCase().replace("ONLY", "only") : "4G and 5G") },
        ]}
      />
      <Pager list={list} things="subscribers" />
      {importing ? (
        <ImportDialog
          onClose={() => {
            setImporting(false);
            list.reload();
          }}
        />
      ) : null}
    </>
  );
}

function Search({ filters }: { filters: Record<string, string> }) {
  const [values, setValues] = useState(filters);
  const set = (name: string) => (value: string) => setValues({ ...values, [name]: value });
  return (
    <search>
      <form
        class="row"
        onSubmit={(event) => {
          event.preventDefault();
          navigate(["subscribers"], { ...values, supi_prefix: (values["supi_prefix"] ?? "").replace(/^imsi-/, "") });
        }}
      >
        <Input label="SUPI begins with" value={values["supi_prefix"] ?? ""} onInput={set("supi_prefix")} />
        {takes("/v1/subscribers", "gpsi") ? (
          <Input label="MSISDN" value={values["gpsi"] ?? ""} onInput={set("gpsi")} />
        ) : null}
        <Input label="Data network" value={values["dnn"] ?? ""} onInput={set("dnn")} />
        <Input label="Slice" hint="SST or SST-SD" value={values["slice"] ?? ""} onInput={set("slice")} />
        <button type="submit" class="main">
          Search
        </button>
      </form>
    </search>
  );
}

export function SubscriberPage({ supi }: { supi: string }) {
  const isNew = supi === "new";
  const path = `/v1/subscribers/${encodeURIComponent(supi)}`;
  const resource = useResource<Subscriber>(isNew ? null : path, []);
  const [removing, setRemoving] = useState(false);
  const canSave = may("admin") && offers(isNew ? "POST" : "PUT", isNew ? "/v1/subscribers" : "/v1/subscribers/{supi}");
  const canRemove = !isNew && may("admin") && offers("DELETE", "/v1/subscribers/{supi}");
  return (
    <>
      <nav aria-label="Breadcrumb">
        <a href={href(["subscribers"])}>Subscribers</a>
      </nav>
      <div class="head">
        <h1>{isNew ? "New subscriber" : `Subscriber ${supi}`}</h1>
        <div class="buttons">
          {!isNew && offers("GET", "/v1/ues/{supi}") ? (
            <a class="button" href={href(["ues", supi])}>
              Show UE
            </a>
          ) : null}
          {canRemove && resource.data ? (
            <button type="button" class="danger" onClick={() => setRemoving(true)}>
              Remove
            </button>
          ) : null}
        </div>
      </div>
      <Failure of={resource} />
      {isNew || resource.data ? (
        <SubscriberForm
          key={resource.etag ?? supi}
          isNew={isNew}
          known={resource.data}
          etag={resource.etag}
          canSave={canSave}
          onSaved={(own) => (isNew ? navigate(["subscribers", own]) : resource.reload())}
        />
      ) : null}
      {removing ? (
        <Confirm
          title="Remove the subscriber?"
          text={`${supi} and its keys are deleted from the database. This cannot be undone.`}
          action="Remove"
          done={`${supi} is removed.`}
          run={async () => {
            await request(path, { method: "DELETE", ifMatch: resource.etag });
            navigate(["subscribers"]);
          }}
          onClose={() => setRemoving(false)}
        />
      ) : null}
    </>
  );
}

