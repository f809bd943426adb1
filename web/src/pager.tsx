// Lists with a cursor: the page remembers the cursors that it came by.
import { useEffect, useState } from "preact/hooks";
import { query } from "./api";
import { count } from "./format";
import { type Page, type Resource, useResource } from "./resource";

const LIMIT = 50;

export interface List<T> extends Resource<Page<T>> {
  items: T[] | undefined;
  back: (() => void) | null;
  forth: (() => void) | null;
  first: number;
}

export function useList<T>(path: string, filters: Record<string, string>, topics: readonly string[], everyMs = 0): List<T> {
  const [cursors, setCursors] = useState<string[]>([]);
  const filterKey = JSON.stringify(filters);
  useEffect(() => setCursors([]), [filterKey]);
  const after = cursors.at(-1);
  const resource = useResource<Page<T>>(path + query({ ...filters, limit: LIMIT, after }), topics, everyMs);
  const next = resource.data?.next;
  return {
    ...resource,
    items: resource.error && !resource.data ? [] : resource.data?.items,
    first: cursors.length * LIMIT,
    back: cursors.length > 0 ? () => setCursors(cursors.slice(0, -1)) : null,
    forth: next ? () => setCursors([...cursors, next]) : null,
  };
}

export function Pager({ list, things }: { list: List<unknown>; things: string }) {
  const shown = list.items?.length ?? 0;
  const total = list.data?.total;
  const range = shown === 0 ? "" : `${count(list.first + 1)}–${count(list.first + shown)}`;
  const text = total === undefined || total === null ? range : `${range || "0"} of ${count(total)} ${things}`;
  return (
    <nav class="pager" aria-label={`Pages of ${things}`}>
      <span role="status">{text}</span>
      {list.back || list.forth ? (
        <>
          <button type="button" disabled={!list.back} onClick={() => list.back?.()}>
            Previous
          </button>
          <button type="button" disabled={!list.forth} onClick={() => list.forth?.()}>
            Next
          </button>
        </>
      ) : null}
    </nav>
  );
}
