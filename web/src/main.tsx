// The page: sign-in, frame, and which part is shown.
import { render } from "preact";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Problem, errorText, hasToken, may, offers, session, signIn, signInNotice, signOut } from "./api";
import { type State, events, liveState, startLive, stopLive } from "./live";
import { AlarmsPage, AuditPage } from "./pages/alarms";
import { ClusterPage } from "./pages/cluster";
import { ConfigurationPage } from "./pages/configuration";
import { OverviewPage } from "./pages/overview";
import { RanNodesPage } from "./pages/ran";
import { SubscriberPage, SubscribersPage } from "./pages/subscribers";
import { UePage, UesPage } from "./pages/ues";
import { UserPlanePage } from "./pages/user-plane";
import { href, route } from "./route";
import { useStore } from "./store";
import "./style.css";
import { Theme, applyTheme } from "./theme";
import { Boundary, Failure, Input, Notes } from "./ui";

interface Part {
  path: string;
  name: string;
  needs: string;
  show: (rest: string[]) => ComponentChildren;
  isShown?: () => boolean;
}

const PARTS: Part[] = [
  { path: "", name: "Overview", needs: "/v1/overview", show: () => <OverviewPage /> },
  {
    path: "ues",
    name: "UEs",
    needs: "/v1/ues",
    show: ([supi]) => (supi ? <UePage key={supi} supi={supi} /> : <UesPage />),
  },
  {
    path: "subscribers",
    name: "Subscribers",
    needs: "/v1/subscribers",
    show: ([supi]) => (supi ? <SubscriberPage key={supi} supi={supi} /> : <SubscribersPage />),
  },
  { path: "ran-nodes", name: "RAN nodes", needs: "/v1/ran-nodes", show: () => <RanNodesPage /> },
  { path: "cluster", name: "Cluster", needs: "/v1/hosts", show: () => <ClusterPage /> },
  { path: "user-plane", name: "User plane", needs: "/v1/upfs", show: () => <UserPlanePage /> },
  {
    path: "configuration",
    name: "Configuration",
    needs: "/v1/configuration",
    show: () => <ConfigurationPage />,
    isShown: () => may("admin"),
  },
  { path: "alarms", name: "Alarms", needs: "/v1/alarms", show: () => <AlarmsPage /> },
  { path: "audit", name: "Audit log", needs: "/v1/audit", show: () => <AuditPage />, isShown: () => may("admin") },
];

function App() {
  const own = useStore(session);
  useEffect(() => {
    if (!hasToken()) return session.set(null);
    signIn().catch((error: unknown) => signOut(errorText(error)));
  }, []);
  useEffect(() => {
    if (own) startLive();
    else stopLive();
  }, [own]);
  if (own === undefined) return <p class="quiet center">Loading …</p>;
  return own === null ? <SignIn /> : <Frame />;
}

function SignIn() {
  const notice = useStore(signInNotice);
  const [secret, setSecret] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => void (document.title = "Sign in · Vireo"), []);
  return (
    <main class="sign-in" id="main">
      <h1>
        <img src="/icon.svg" alt="" width="32" height="32" /> Vireo
      </h1>
      <form
        class="card"
        aria-label="Sign in"
        onSubmit={(event) => {
          event.preventDefault();
          setBusy(true);
          setError("");
          signIn(secret.trim())
            .catch((problem: unknown) =>
              setError(problem instanceof Problem && problem.status === 401 ? "This token is not known here." : errorText(problem)),
            )
            .finally(() => setBusy(false));
        }}
      >
        {notice ? <p role="status">{notice}</p> : null}
        <Input
          label="API token"
          type="password"
          value={secret}
          required
          autoComplete="current-password"
          hint="the content of api.token-file, or a token of vireo token"
          onInput={setSecret}
        />
        <Failure of={{ error }} />
        <div class="buttons">
          <button type="submit" class="main" disabled={busy}>
            Sign in
          </button>
        </div>
      </form>
    </main>
  );
}

const LIVE: Record<State, string> = {
  connecting: "Connecting …",
  live: "Live",
  polling: "Updated every few seconds",
};

function Frame() {
  const own = session.value!;
  const { path } = useStore(route);
  const live = useStore(liveState);
  const main = useRef<HTMLElement>(null);
  const shown = PARTS.filter((part) => offers("GET", part.needs) && (part.isShown?.() ?? true));
  const part = shown.find((candidate) => candidate.path === (path[0] ?? ""));
  const place = path.join("/");
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = `${[part?.name ?? "Not found", ...path.slice(1)].join(" · ")} · Vireo`;
    // A new page begins at its heading, also for keyboards and screen readers.
    if (!isFirst.current) main.current?.focus();
    isFirst.current = false;
  }, [place]);
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          // The fragment is the route.
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to content
      </a>
      <header class="top">
        <a class="name" href={href([])}>
          <img src="/icon.svg" alt="" width="24" height="24" /> Vireo
        </a>
        <span class={`live ${live}`} role="status">
          {LIVE[live]}
        </span>
        <span class="quiet who">
          {own.name} ({own.role}), release {own.version}
        </span>
        {offers("GET", "/v1/docs") ? <a href="/v1/docs">API</a> : null}
        <Theme />
        <button type="button" onClick={() => signOut()}>
          Sign out
        </button>
      </header>
      <div class="body">
        <nav class="parts" aria-label="Pages">
          <ul>
            {shown.map((item) => (
              <li key={item.path}>
                <a href={href(item.path ? [item.path] : [])} aria-current={item === part ? "page" : undefined}>
                  {item.name}
                </a>
              </li>
            ))}
          </ul>
        </nav>
        <main id="main" ref={main} tabIndex={-1}>
          <Boundary key={place}>{part ? part.show(path.slice(1)) : <h1>There is no such page</h1>}</Boundary>
        </main>
      </div>
      <AlarmAnnouncer />
      <Notes />
    </>
  );
}

// Reads new alarms to users of screen readers, on whatever part they are.
function AlarmAnnouncer() {
  const [begun] = useState(Date.now());
  const last = useStore(events).filter((event) => event.topic === "alarm" && Date.parse(event.time) > begun).at(-1);
  const words = ["severity", "kind", "object"].map((field) => String(last?.data[field] ?? "").replaceAll("_", " "));
  return (
    <div class="hidden" role="alert">
      {last ? `Alarm: ${words.join(" ")}` : ""}
    </div>
  );
}

applyTheme();
render(<App />, document.getElementById("app")!);
