"""The browser of the tests of the web page, and what must be true of every page."""

from playwright.sync_api import expect

# Debian's; the driver brings none and fetches none.
CHROMIUM = "/usr/bin/chromium"

# Checks that need the page's own view of itself. Each returns sentences about what is wrong.
CHECKS = r"""
() => {
  const found = [];
  const isShown = (e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest("[inert]");
  const text = (id) => document.getElementById(id)?.textContent ?? "";
  const name = (e) => {
    const by = (e.getAttribute("aria-labelledby") ?? "").split(" ").filter(Boolean).map(text).join(" ");
    const labels = [...(e.labels ?? [])].map((label) => label.textContent).join(" ");
    const alt = [...e.querySelectorAll("img")].map((img) => img.alt).join(" ");
    return (by || e.getAttribute("aria-label") || labels || e.textContent + alt || e.title || "").trim();
  };
  const short = (e) => e.outerHTML.slice(0, 120);
  for (const e of document.querySelectorAll("a[href],button,input,select,textarea,[role=img],[role=region],dialog[open],form"))
    if (isShown(e) && !name(e)) found.push(`no name: ${short(e)}`);
  for (const e of document.querySelectorAll("select,input,textarea"))
    if (isShown(e) && !e.labels?.length && !e.getAttribute("aria-label")) found.push(`no label: ${short(e)}`);
  for (const e of document.querySelectorAll("img:not([alt])")) found.push(`no alternative text: ${short(e)}`);
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) found.push(`id twice: ${id}`);
  if (document.querySelectorAll("h1").length !== 1) found.push("not one h1");
  const levels = [...document.querySelectorAll("h1,h2,h3")].filter(isShown).map((e) => Number(e.tagName[1]));
  levels.forEach((level, i) => { if (i > 0 && level > levels[i - 1] + 1) found.push("a heading level is left out"); });
  if (document.querySelectorAll("main").length !== 1) found.push("not one main");
  if (!document.documentElement.lang) found.push("no language");
  for (const e of document.querySelectorAll("[tabindex]")) if (e.tabIndex > 0) found.push(`own order of focus: ${short(e)}`);
  for (const e of document.querySelectorAll("th:not([scope])")) found.push(`no scope: ${short(e)}`);
  if (document.querySelector("[style]:not(html)")) {
    for (const e of document.querySelectorAll("body [style]")) found.push(`inline style: ${short(e)}`);
  }
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (wide > 0) found.push(`the page is ${wide} pixels too wide`);
  const channel = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const luminance = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const own = rgba(getComputedStyle(e).backgroundColor);
      if (own[3] > 250) return own;
    }
    return [255, 255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const e = node.parentElement;
    if (!node.data.trim() || !isShown(e) || e.closest(":disabled,.hidden,noscript,option")) continue;
    const [a, b] = [luminance(rgba(getComputedStyle(e).color)), luminance(ground(e))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.push(`contrast ${contrast.toFixed(2)}: ${node.data.trim().slice(0, 60)}`);
  }
  return found;
}
"""


class Browser:
    """A tab, with all that it requested and complained about."""

    def __init__(self, playwright, origin, width=1280, scheme="light"):
        self.origin = origin
        self.browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        size = {"width": width, "height": 800}
        self.context = self.browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
        self.requests = []
        self.complaints = []
        # Answers that a story expects the server to refuse; the browser writes them to its console.
        self.expected = []
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.page.on("console", self.on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))

    def on_console(self, message):
        if message.type not in ("error", "warning"):
            return
        if any(part in message.text for part in self.expected):
            return
        self.complaints.append(f"{message.type}: {message.text}")

    def sign_in(self, token):
        self.page.goto(f"{self.origin}/")
        self.page.get_by_label("API token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        self.heading("Overview")

    def heading(self, name):
        expect(self.page.get_by_role("heading", level=1, name=name)).to_be_visible(timeout=30_000)

    def open(self, link, heading=None):
        self.page.get_by_role("navigation", name="Pages").get_by_role("link", name=link, exact=True).click()
        self.heading(heading or link)

    def rows(self, table):
        return self.page.get_by_role("table", name=table).locator("tbody tr")

    def assert_accessible(self, where):
        found = self.page.evaluate(CHECKS)
        assert not found, f"{where}: " + "; ".join(found)

    def close(self):
        foreign = [url for url in self.requests if not url.startswith(f"{self.origin}/")]
        self.browser.close()
        assert not foreign, f"requests leave the origin: {foreign}"
        assert not self.complaints, f"the console has: {self.complaints}"
        return len(self.requests)
