// Import of a CSV or JSON file: the server checks it first and the page shows what it found.
import { useId, useState } from "preact/hooks";
import { errorText, query, request } from "../api";
import { count } from "../format";
import { useResource } from "../resource";
import type { Import, Preview } from "../types";
import { Dialog, Failure, Meter, Select, Table } from "../ui";

const CONFLICTS = [
  ["fail", "stop: import nothing"],
  ["skip", "keep the stored subscriber"],
  ["replace", "replace the stored subscriber"],
] as const;

export function ImportDialog({ onClose }: { onClose: () => void }) {
  const file = useId();
  const [chosen, setChosen] = useState<File>();
  const [conflict, setConflict] = useState("fail");
  const [preview, setPreview] = useState<Preview>();
  const [started, setStarted] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);

  async function send(dryRun: boolean): Promise<void> {
    if (!chosen) return;
    setBusy(true);
    setError("");
    try {
      const isJson = chosen.name.toLowerCase().endsWith(".json");
      const path = `/v1/subscribers/import${query({ dry_run: dryRun ? "true" : "", conflict })}`;
      const answer = await request<Preview & Import>(path, {
        method: "POST",
        text: await chosen.text(),
        type: isJson ? "application/json" : "text/csv",
      });
      if (dryRun) setPreview(answer.body);
      else setStarted(String(answer.body.id));
    } catch (problem) {
      setError(errorText(problem));
    } finally {
      setBusy(false);
    }
  }

  const changed = () => {
    setPreview(undefined);
    setError("");
  };
  return (
    <Dialog title="Import subscribers" onClose={onClose}>
      {started ? (
        <Progress id={started} />
      ) : (
        <>
          <div class="grid">
            <div class="field">
              <label for={file}>CSV or JSON file</label>
              <input
                id={file}
                type="file"
                accept=".csv,.json,text/csv,application/json"
                onChange={(event) => {
                  setChosen(event.currentTarget.files?.[0]);
                  changed();
                }}
              />
            </div>
            <Select
              label="If a subscriber exists"
              value={conflict}
              options={CONFLICTS}
              onChange={(value) => {
                setConflict(value);
                changed();
              }}
            />
          </div>
          <Failure of={{ error }} />
          {preview ? <Found preview={preview} /> : null}
          <div class="buttons">
            <button type="button" class={preview ? "" : "main"} disabled={!chosen || busy} onClick={() => void send(true)}>
              Check file
            </button>
            {preview?.valid ? (
              <button type="button" class="main" disabled={busy} onClick={() => void send(false)}>
                Import {count(preview.rows)} subscribers
              </button>
            ) : null}
          </div>
        </>
      )}
    </Dialog>
  );
}

function Found({ preview }: { preview: Preview }) {
  return (
    <>
      <p role="status">
        {preview.valid
          ? `${count(preview.rows)} rows have no error; ${count(preview.existing)} of the subscribers exist.`
          : `${count(preview.errors.length)} errors. Nothing is imported while the file has one.`}
      </p>
      {preview.errors.length > 0 ? (
        <Table
          caption="Errors of the file"
          rows={preview.errors}
          rowKey={(_, index) => index}
          empty=""
          columns={[
            { head: "Line", cell: (row) => String(row.line ?? "–") },
            { head: "Problem", cell: (row) => row.detail },
          ]}
        />
      ) : null}
    </>
  );
}

function Progress({ id }: { id: string }) {
  const [over, setOver] = useState(false);
  const resource = useResource<Import>(over ? null : `/v1/imports/${encodeURIComponent(id)}`, [], 500);
  const [last, setLast] = useState<Import>();
  if (resource.data && resource.data !== last) {
    setLast(resource.data);
    if (resource.data.state !== "running") setOver(true);
  }
  if (!last) return <Failure of={resource} />;
  const text = `${count(last.done)} of ${count(last.rows)} subscribers`;
  return (
    <div role="status">
      <p>
        {last.state === "done" ? "Imported: " : last.state === "failed" ? "Failed: " : "Importing: "}
        {text}
      </p>
      <Meter value={last.done} max={last.rows} label={text} tone={last.state === "failed" ? "bad" : "good"} />
      {last.detail ? <p class={last.state === "failed" ? "error" : "quiet"}>{last.detail}</p> : null}
    </div>
  );
}
