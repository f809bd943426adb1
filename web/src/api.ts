// Client of the API v1: requests, problem details, the signed-in user, what the server offers.
import { Store } from "./store";

export type Role = "read" | "operate" | "admin";

export interface Session {
  name: string;
  role: Role;
  version: string;
  commit?: string | null;
}

export interface FieldError {
  pointer?: string;
  detail: string;
}

// An error answer (RFC 9457), or no answer at all (status 0).
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly errors: FieldError[] = [],
  ) {
    super(detail || title);
  }
}

export interface Answer<T> {
  body: T;
  etag: string | null;
  location: string | null;
  status: number;
}

export interface Options {
  method?: string;
  json?: unknown;
  text?: string | Blob;
  type?: string;
  ifMatch?: string | null;
  signal?: AbortSignal;
}

const TOKEN = "vireo.token";
const ROLES: Role[] = ["read", "operate", "admin"];

// undefined: not known yet; null: sign-in needed.
export const session = new Store<Session | null | undefined>(undefined);
// Why the last session ended; shown by the sign-in form.
export const signInNotice = new Store<string>("");

// Tokens live as long as the tab. They are in no URL and in no cookie.
function token(): string | null {
  return sessionStorage.getItem(TOKEN);
}

export function hasToken(): boolean {
  return token() !== null;
}

export function headers(): Record<string, string> {
  const own = token();
  return own === null ? {} : { Authorization: `Bearer ${own}` };
}

export function may(role: Role): boolean {
  const own = session.value;
  return !!own && ROLES.indexOf(own.role) >= ROLES.indexOf(role);
}

export async function request<T>(path: string, options: Options = {}): Promise<Answer<T>> {
  const head = new Headers(headers());
  let body: BodyInit | undefined;
  if (options.json !== undefined) {
    head.set("Content-Type", "application/json");
    body = JSON.stringify(options.json);
  } else if (options.text !== undefined) {
    head.set("Content-Type", options.type ?? "text/plain");
    body = options.text;
  }
  if (options.ifMatch) head.set("If-Match", options.ifMatch);
  let answer: Response;
  try {
    answer = await fetch(path, {
      method: options.method ?? "GET",
      headers: head,
      body,
      signal: options.signal,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "No answer", "The server does not answer.");
  }
  if (!answer.ok) throw await problem(answer);
  const type = answer.headers.get("Content-Type") ?? "";
  const parsed = answer.status === 204 ? undefined : type.includes("json") ? await answer.json() : await answer.text();
  return {
    body: parsed as T,
    etag: answer.headers.get("ETag"),
    location: answer.headers.get("Location"),
    status: answer.status,
  };
}

async function problem(answer: Response): Promise<Problem> {
  const text = await answer.text();
  let title = answer.statusText || `Status ${answer.status}`;
  let detail = "";
  let errors: FieldError[] = [];
  try {
    const parsed = JSON.parse(text);
    title = parsed.title ?? title;
    detail = parsed.detail ?? "";
    errors = Array.isArray(parsed.errors) ? parsed.errors : [];
  } catch {
    if (!text.trimStart().startsWith("<")) detail = text.trim();
  }
  if (answer.status === 401 && session.value) signOut("The server no longer accepts the token.");
  return new Problem(answer.status, title, detail, errors);
}

// Opens the session of a token: a new one, or that of the tab.
export async function signIn(secret?: string): Promise<void> {
  if (secret !== undefined) sessionStorage.setItem(TOKEN, secret);
  try {
    const { body } = await request<Session>("/v1/session");
    await loadRoutes();
    signInNotice.set("");
    session.set(body);
  } catch (error) {
    if (secret !== undefined) sessionStorage.removeItem(TOKEN);
    if (error instanceof Problem && error.status === 404) throw new Problem(404, "No API v1", "This process has no API v1.");
    throw error;
  }
}

export function signOut(why = ""): void {
  sessionStorage.removeItem(TOKEN);
  signInNotice.set(why);
  session.set(null);
}

// Routes of the server, as "GET /v1/ues", with the names of their parameters; empty: the server does not describe itself.
let routes = new Map<string, Set<string>>();

interface Operation {
  parameters?: { name?: string }[];
}

async function loadRoutes(): Promise<void> {
  routes = new Map();
  try {
    const { body } = await request<{ paths?: Record<string, Record<string, Operation>> }>("/v1/openapi.json");
    for (const [path, methods] of Object.entries(body.paths ?? {})) {
      for (const [method, operation] of Object.entries(methods)) {
        const names = (operation.parameters ?? []).map((parameter) => parameter.name ?? "");
        routes.set(key(method, path), new Set(names));
      }
    }
  } catch {
    // Pages then show what the server answers.
  }
}

function key(method: string, path: string): string {
  return `${method.toUpperCase()} ${path.replace(/\{[^}]*\}/g, "{}")}`;
}

// Whether the server has a route. Pages and controls without one are not shown.
export function offers(method: string, path: string): boolean {
  return routes.size === 0 || routes.has(key(method, path));
}

// Whether a route has a parameter.
export function takes(path: string, parameter: string): boolean {
  return routes.size === 0 || !!routes.get(key("GET", path))?.has(parameter);
}

export function query(values: Record<string, string | number | undefined>): string {
  const pairs = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
  return text ? `?${text}` : "";
}

export function errorText(error: unknown): string {
  if (error instanceof Problem) {
    const more = error.errors.map((e) => (e.pointer ? `${e.pointer}: ${e.detail}` : e.detail));
    return [error.detail || error.title, ...more].join(" · ");
  }
  return error instanceof Error ? error.message : String(error);
}
