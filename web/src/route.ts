// Routes in the fragment of the address: #/ues/imsi-...?after=...
import { Store } from "./store";

export interface Route {
  path: string[];
  query: URLSearchParams;
}

function parse(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter((part) => part !== "");
  return { path: parts.map((part) => safeDecode(part)), query: new URLSearchParams(query) };
}

function safeDecode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = new Store<Route>(parse());
addEventListener("hashchange", () => route.set(parse()));

export function href(path: readonly string[], query: Record<string, string> = {}): string {
  const pairs = Object.entries(query).filter(([, value]) => value !== "");
  const text = new URLSearchParams(pairs).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function navigate(path: readonly string[], query: Record<string, string> = {}): void {
  location.hash = href(path, query);
}
