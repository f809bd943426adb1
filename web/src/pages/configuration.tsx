// The configuration file: edit, check with the differences, apply, restore what was before.
import { useEffect, useId, useState } from "preact/hooks";
import { Problem, errorText, may, offers, request } from "../api";
import { type Line, context, diff } from "../diff";
import { useResource } from "../resource";
import type { Validation } from "../types";
import { Badge, Card, Failure, Table, notify } from "../ui";

const PATH = "/v1/configuration";
const TYPE = "application/toml";

export function ConfigurationPage() {
  const resource = useResource<string>(PATH, []);
  const [text, setText] = useState<string>();
  const [checked, setChecked] = useState<{ text: string; result: Validation }>();
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const [before, setBefore] = useState<string>();
  const editor = useId();
  const stored = resource.data;
  useEffect(() => setText(stored), [stored]);
  const canApply = may("admin") && offers("PUT", PATH);
  const isChanged = text !== undefined && text !== stored;
  const isChecked = checked?.text === text;

  async function run(work: () => Promise<void>): Promise<void> {
    setBusy(true);
    setError("");
    try {
      await work();
    } catch (problem) {
      const moved = problem instanceof Problem && problem.status === 412;
      setError(moved ? "The file has changed since it was loaded. Load it again." : errorText(problem));
    } finally {
      setBusy(false);
    }
  }

  const check = () =>
    run(async () => {
      const answer = await request<Validation>(`${PATH}/validate`, { method: "POST", text: text!, type: TYPE });
      setChecked({ text: text!, result: answer.body });
    });
  const apply = () =>
    run(async () => {
      await request(PATH, { method: "PUT", text: text!, type: TYPE, ifMatch: resource.etag });
      setBefore(stored);
      setChecked(undefined);
      notify("The configuration is applied.");
      resource.reload();
    });

  return (
    <>
      <h1>Configuration</h1>
      <Failure of={resource} />
      {text === undefined ? null : (
        <>
          <Card title="File" wide>
            <div class="field">
              <label for={editor}>Configuration in TOML; secrets are masked</label>
              <textarea
                id={editor}
                rows={22}
                value={text}
                spellcheck={false}
                readOnly={!canApply}
                autoCapitalize="off"
                wrap="off"
                onInput={(event) => setText(event.currentTarget.value)}
              />
            </div>
            {canApply ? (
              <div class="buttons">
                <button type="button" class={isChecked ? "" : "main"} disabled={!isChanged || busy} onClick={() => void check()}>
                  Check changes
                </button>
                <button
                  type="button"
                  class="main"
                  disabled={!isChanged || !isChecked || !checked?.result.valid || busy}
                  onClick={() => void apply()}
                >
                  Apply
                </button>
                <button type="button" disabled={!isChanged} onClick={() => setText(stored)}>
                  Discard changes
                </button>
                {before !== undefined && before !== stored ? (
                  <button type="button" onClick={() => setText(before)}>
                    Edit back to the version before
                  </button>
                ) : null}
              </div>
            ) : null}
            <Failure of={{ error }} />
          </Card>
          {isChanged && stored !== undefined ? <Difference lines={diff(stored, text)} /> : null}
          {isChecked && checked ? <Result result={checked.result} /> : null}
        </>
      )}
    </>
  );
}

function Difference({ lines }: { lines: Line[] }) {
  const marks = { same: " ", old: "−", new: "+" };
  const names = { same: "", old: "removed: ", new: "added: " };
  return (
    <Card title="Differences to the file in use" wide>
      <div class="scroll" role="region" aria-label="Differences" tabIndex={0}>
        <ol class="diff">
          {context(lines).map((line, index) =>
            line === undefined ? (
              <li key={index} class="cut">
                …
              </li>
            ) : (
              <li key={index} class={line.kind}>
                <span class="at">{line.number}</span>
                <span aria-hidden="true">{marks[line.kind]} </span>
                <span class="hidden">{names[line.kind]}</span>
                {line.text || " "}
              </li>
            ),
          )}
        </ol>
      </div>
    </Card>
  );
}

function value(own: unknown): string {
  if (own === undefined || own === null) return "not set";
  return typeof own === "string" ? own : JSON.stringify(own);
}

function Result({ result }: { result: Validation }) {
  const problems = (result.errors ?? []).map((problem) => {
    if (typeof problem === "string") return problem;
    const place = problem.pointer ?? (problem.line === undefined ? "" : `line ${problem.line}`);
    return place ? `${place}: ${problem.detail}` : problem.detail;
  });
  return (
    <Card title="Result of the check" wide>
      <p role="status">
        <Badge tone={result.valid ? "good" : "bad"}>{result.valid ? "valid" : "not valid"}</Badge>
      </p>
      {problems.length > 0 ? (
        <ul class="error">
          {problems.map((problem) => (
            <li key={problem}>{problem}</li>
          ))}
        </ul>
      ) : null}
      {result.valid ? (
        <Table
          caption="Changed keys"
          rows={result.changes ?? []}
          rowKey={(change) => change.key}
          empty="No key has another value."
          columns={[
            { head: "Key", cell: (change) => <code>{change.key}</code> },
            { head: "Old value", cell: (change) => <code>{value(change.old)}</code> },
            { head: "New value", cell: (change) => <code>{value(change.new)}</code> },
            {
              head: "Takes effect",
              cell: (change) =>
                change.applies === "restart" ? <Badge tone="warn">after a restart</Badge> : <Badge tone="good">at once</Badge>,
            },
          ]}
        />
      ) : null}
    </Card>
  );
}
