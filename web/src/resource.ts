// Data of the server in components: loaded, reloaded on events, or at intervals without events.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { errorText, request } from "./api";
import { liveState, onTopics } from "./live";
import { useStore } from "./store";

export interface Resource<T> {
  data: T | undefined;
  etag: string | null;
  error: string;
  status: number;
  reload: () => void;
}

export interface Page<T> {
  items: T[];
  next?: string | null;
  total?: number;
}

const POLL_MS = 5000;
// Events of many UEs cause at most one reload in this time.
const RELOAD_MS = 1000;

export function useResource<T>(path: string | null, topics: readonly string[] = [], everyMs = 0): Resource<T> {
  const [state, setState] = useState<Omit<Resource<T>, "reload"> & { path: string | null }>(empty(path));
  const live = useStore(liveState);
  const generation = useRef(0);
  const load = useCallback(async () => {
    if (path === null) return;
    const own = ++generation.current;
    try {
      const { body, etag, status } = await request<T>(path);
      if (own === generation.current) setState({ path, data: body, etag, error: "", status });
    } catch (error) {
      const status = (error as { status?: number }).status ?? 0;
      if (own !== generation.current) return;
      setState((old) => ({ ...(old.path === path ? old : empty<T>(path)), error: errorText(error), status }));
    }
  }, [path]);
  useEffect(() => {
    void load();
    return () => void (generation.current += 1);
  }, [load]);
  useEffect(() => {
    if (path === null || topics.length === 0) return;
    let timer: number | undefined;
    const stop = onTopics(topics, () => {
      timer ??= window.setTimeout(() => {
        timer = undefined;
        if (!document.hidden) void load();
      }, RELOAD_MS);
    });
    return () => {
      stop();
      window.clearTimeout(timer);
    };
  }, [load, topics.join(" ")]);
  const period = everyMs || (live === "polling" && topics.length > 0 ? POLL_MS : 0);
  useEffect(() => {
    if (path === null || period === 0) return;
    const timer = window.setInterval(() => document.hidden || void load(), period);
    return () => window.clearInterval(timer);
  }, [load, period]);
  const shown = state.path === path ? state : empty<T>(path);
  return { data: shown.data, etag: shown.etag, error: shown.error, status: shown.status, reload: () => void load() };
}

function empty<T>(path: string | null): Omit<Resource<T>, "reload"> & { path: string | null } {
  return { path, data: undefined, etag: null, error: "", status: 0 };
}
