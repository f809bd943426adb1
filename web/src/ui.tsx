// Parts that all pages use. Every control has a name; no meaning is in a colour alone.
import { Component } from "preact";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { errorText } from "./api";
import type { Resource } from "./resource";
import { href } from "./route";
import { Store, useStore } from "./store";

export type Tone = "good" | "bad" | "warn" | "plain";

export function Badge({ tone = "plain", children }: { tone?: Tone; children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

// A SUPI, as a link unless the role sees it masked.
export function SupiLink({ part, supi }: { part: string; supi: string }) {
  if (!/^imsi-[0-9]+$/.test(supi)) return <>{supi || "not known yet"}</>;
  return <a href={href([part, supi])}>{supi}</a>;
}

export function Card(props: { title: string; children: ComponentChildren; aside?: ComponentChildren; wide?: boolean }) {
  const id = useId();
  return (
    <section class={props.wide ? "card wide" : "card"} aria-labelledby={id}>
      <header>
        <h2 id={id}>{props.title}</h2>
        {props.aside}
      </header>
      {props.children}
    </section>
  );
}

export interface Column<T> {
  head: string;
  cell: (row: T) => ComponentChildren;
  number?: boolean;
}

export function Table<T>(props: {
  caption: string;
  columns: (Column<T> | false)[];
  rows: readonly T[] | undefined;
  empty: string;
  rowKey: (row: T, index: number) => string | number;
}) {
  const columns = props.columns.filter((column) => column !== false);
  if (props.rows === undefined) return <p class="quiet">Loading …</p>;
  if (props.rows.length === 0) return <p class="quiet">{props.empty}</p>;
  return (
    <div class="scroll" role="region" aria-label={props.caption} tabIndex={0}>
      <table>
        <caption class="hidden">{props.caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.head} scope="col" class={column.number ? "number" : ""}>
                {column.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {props.rows.map((row, index) => (
            <tr key={props.rowKey(row, index)}>
              {columns.map((column) => (
                <td key={column.head} class={column.number ? "number" : ""}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Facts({ items }: { items: [string, ComponentChildren][] }) {
  const shown = items.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return (
    <dl class="facts">
      {shown.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Failure({ of }: { of: Pick<Resource<unknown>, "error"> }) {
  return of.error ? (
    <p class="error" role="alert">
      {of.error}
    </p>
  ) : null;
}

// Limits the harm of an answer that a part does not understand to this part.
export class Boundary extends Component<{ children: ComponentChildren }, { error: string }> {
  override state = { error: "" };

  static getDerivedStateFromError(error: unknown): { error: string } {
    return { error: errorText(error) };
  }

  render() {
    if (!this.state.error) return this.props.children;
    return (
      <>
        <h1>This part cannot be shown</h1>
        <Failure of={this.state} />
      </>
    );
  }
}

type InputProps = {
  label: string;
  value: string;
  onInput: (value: string) => void;
  hint?: string;
  type?: "text" | "password" | "number";
  required?: boolean;
  pattern?: string;
  readOnly?: boolean;
  autoComplete?: string;
  inputMode?: "numeric" | "text";
  placeholder?: string;
};

export function Input({ label, hint, onInput, ...rest }: InputProps) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        {...rest}
        type={(rest.type ?? "text") as "text"}
        spellcheck={false}
        autoComplete={rest.autoComplete ?? "off"}
        aria-describedby={hint ? `${id}-hint` : undefined}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      {hint ? (
        <small id={`${id}-hint`} class="quiet">
          {hint}
        </small>
      ) : null}
    </div>
  );
}

export function Select(props: {
  label: string;
  value: string;
  options: readonly (readonly [string, string])[];
  onChange: (value: string) => void;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <select id={id} value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
        {props.options.map(([value, text]) => (
          <option key={value} value={value} selected={value === props.value}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}

export function Check(props: { label: string; checked: boolean; onChange: (checked: boolean) => void }) {
  const id = useId();
  return (
    <div class="check">
      <input
        id={id}
        type="checkbox"
        checked={props.checked}
        onChange={(event) => props.onChange(event.currentTarget.checked)}
      />
      <label for={id}>{props.label}</label>
    </div>
  );
}

// A button that runs one request at a time and reports its outcome.
export function Action(props: {
  children: ComponentChildren;
  run: () => Promise<unknown>;
  done?: string;
  failed?: (text: string) => void;
  kind?: "danger" | "main" | "";
  disabled?: boolean;
  label?: string;
}) {
  const [busy, setBusy] = useState(false);
  async function click() {
    setBusy(true);
    try {
      await props.run();
      if (props.done) notify(props.done);
    } catch (error) {
      if (props.failed) props.failed(errorText(error));
      else notify(errorText(error), "bad");
    } finally {
      setBusy(false);
    }
  }
  return (
    <button
      type="button"
      class={props.kind ?? ""}
      disabled={busy || props.disabled}
      aria-busy={busy}
      aria-label={props.label}
      onClick={() => void click()}
    >
      {props.children}
    </button>
  );
}

// A modal dialog. The focus stays in it, and returns to its opener afterwards.
export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const opener = document.activeElement;
    element.current?.showModal();
    return () => {
      element.current?.close();
      // After the removal: until then the rest of the page is inert.
      setTimeout(() => opener instanceof HTMLElement && opener.focus());
    };
  }, []);
  return (
    <dialog ref={element} aria-labelledby={id} onClose={props.onClose}>
      <header>
        <h2 id={id}>{props.title}</h2>
        <button type="button" class="plain" aria-label="Close" onClick={props.onClose}>
          ✕
        </button>
      </header>
      {props.children}
    </dialog>
  );
}

// Asks before a change that takes something away.
export function Confirm(props: {
  title: string;
  text: string;
  action: string;
  run: () => Promise<unknown>;
  done: string;
  onClose: () => void;
}) {
  const [error, setError] = useState("");
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <p>{props.text}</p>
      <Failure of={{ error }} />
      <div class="buttons">
        <Action
          kind="danger"
          failed={setError}
          run={async () => {
            await props.run();
            notify(props.done);
            props.onClose();
          }}
        >
          {props.action}
        </Action>
        <button type="button" onClick={props.onClose}>
          Cancel
        </button>
      </div>
    </Dialog>
  );
}

export function Meter(props: { value: number; max: number; label: string; tone?: Tone }) {
  const part = props.max > 0 ? Math.min(1, props.value / props.max) : 0;
  return (
    <svg class={`meter ${props.tone ?? "good"}`} viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label={props.label}>
      <rect class="track" width="100" height="8" />
      <rect class="fill" width={100 * part} height="8" />
    </svg>
  );
}

export function Spark({ values, label }: { values: readonly number[]; label: string }) {
  if (values.length < 2) return <svg class="spark" viewBox="0 0 100 24" role="img" aria-label={label} />;
  const high = Math.max(...values, 1e-9);
  const low = Math.min(...values, 0);
  const x = (index: number) => ((100 * index) / (values.length - 1)).toFixed(2);
  const y = (value: number) => (22 - (20 * (value - low)) / (high - low)).toFixed(2);
  const line = values.map((value, index) => `${x(index)},${y(value)}`).join(" ");
  return (
    <svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label={label}>
      <polygon points={`0,24 ${line} 100,24`} />
      <polyline points={line} vector-effect="non-scaling-stroke" />
    </svg>
  );
}

export interface Note {
  text: string;
  tone: Tone;
  id: number;
}

export const notes = new Store<Note[]>([]);
let nextNote = 0;

export function notify(text: string, tone: Tone = "good"): void {
  const id = nextNote++;
  notes.set([...notes.value.slice(-2), { text, tone, id }]);
  setTimeout(() => notes.set(notes.value.filter((note) => note.id !== id)), 8000);
}

export function Notes() {
  const shown = useStore(notes);
  return (
    <div class="notes" role="status" aria-live="polite">
      {shown.map((note) => (
        <p key={note.id} class={note.tone}>
          {note.text}
        </p>
      ))}
    </div>
  );
}
