"""What people do with the web page, as tests in a browser."""

import re
import time

from playwright.sync_api import expect
from world import FIRST, K, OPC, wait

UES = 60
# A gNB of its own, which a test ends.
LOST_UES = 4
LOST_FIRST = FIRST + UES
NEW = "999700000009001"
IMPORTED = 999700000009100


def sign_in(world, browser, token):
    """A wrong token is refused; the right one is nowhere but in the storage of the tab."""
    page = browser.page
    browser.expected.append("401")
    page.goto(f"{browser.origin}/")
    browser.assert_accessible("sign-in")
    page.get_by_label("API token").fill("0123456789abcdef0123456789abcdef")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not known")
    browser.expected.clear()
    browser.sign_in(token)
    assert token not in page.url
    assert page.evaluate("JSON.stringify(localStorage) + document.cookie") == "{}"
    assert token in page.evaluate("JSON.stringify(sessionStorage)")
    assert not any(token in url for url in browser.requests)


def overview(world, browser):
    """The overview shows what the command line shows, and follows."""
    counts = world.status()["counts"]
    page = browser.page
    page.goto(f"{browser.origin}/#/")
    tile = lambda name: page.locator(f'[data-tile="{name}"]')
    expect(tile("Registered UEs")).to_have_text(f"{counts['registered']:,}")
    expect(tile("Sessions")).to_have_text(f"{counts['sessions']:,}")
    expect(tile("RAN nodes")).to_have_text(f"{counts['gnbs']:,}")
    if "/v1/events" in world.routes():
        expect(page.locator(".live")).to_have_text("Live")
    expect(browser.rows("Latency of procedures against their objectives").first).to_be_visible()


def one_ue(world, browser):
    """A UE is found by its SUPI; its session has the address that the command line shows."""
    imsi = str(FIRST + 7)
    known = next(ue for ue in world.status()["ues"] if imsi in ue["supi"])
    page = browser.page
    browser.open("UEs")
    expect(browser.rows("UEs").nth(10)).to_be_visible()
    page.get_by_label("Search by").select_option("supi")
    page.get_by_label("Value").fill(f"imsi-{imsi}")
    page.get_by_role("button", name="Search").click()
    expect(browser.rows("UEs")).to_have_count(1)
    browser.assert_accessible("UEs")
    browser.rows("UEs").get_by_role("link", name=f"imsi-{imsi}").click()
    browser.heading(f"UE imsi-{imsi}")
    session = browser.rows("Sessions of the UE").first
    expect(session).to_contain_text(known["sessions"][0]["ipv4"])
    expect(session).to_contain_text("internet")
    browser.assert_accessible("UE")
    # By the address of its session, too.
    browser.open("UEs")
    page.get_by_label("Search by").select_option("address")
    page.get_by_label("Value").fill(known["sessions"][0]["ipv4"])
    page.get_by_role("button", name="Search").click()
    expect(browser.rows("UEs")).to_have_count(1)
    expect(browser.rows("UEs").first).to_contain_text(imsi)


def register_again(world, browser):
    """The network deregisters a UE; its page shows it."""
    supi = f"imsi-{FIRST + 3}"
    page = browser.page
    page.goto(f"{browser.origin}/#/ues/{supi}")
    browser.heading(f"UE {supi}")
    page.get_by_role("button", name="Register again").click()
    expect(page.get_by_role("status").filter(has_text="register again")).to_be_visible()
    # The emulated UE of this scenario stays away.
    expect(page.get_by_role("region", name="Registration")).to_contain_text("deregistered")
    expect(page.get_by_role("log")).to_contain_text("State: registered → deregistered")


def subscriber(world, browser):
    """A subscriber is added and changed in forms; the command line shows it, and its UE registers."""
    page = browser.page
    browser.open("Subscribers")
    page.get_by_role("link", name="Add subscriber").click()
    browser.heading("New subscriber")
    browser.assert_accessible("new subscriber")
    page.get_by_label("IMSI").fill(NEW)
    page.get_by_label("K", exact=True).fill(K)
    page.get_by_label("OPc", exact=True).fill(OPC)
    page.get_by_role("button", name="Add subscriber").click()
    browser.heading(f"Subscriber imsi-{NEW}")
    assert world.subscribers()[NEW]["subscription"]["slices"][0]["dnns"][0]["dnn"] == "internet"
    emulated = world.emulate("new-ue", NEW, 1, 900, "--scenario", "session")
    wait("the new UE", lambda: emulated.poll() is not None)
    assert emulated.returncode == 0, world.log("new-ue")
    # The keys are empty in the form: they stay.
    page.get_by_label("Allowed access").select_option("5g")
    page.get_by_role("group", name="Rates of all sessions together").get_by_label("Uplink (Mbit/s)").fill("250")
    page.get_by_role("button", name="Save changes").click()
    expect(page.get_by_role("status").filter(has_text="is changed")).to_be_visible()
    changed = world.subscribers()[NEW]["subscription"]
    assert changed["only"] == "5g" and changed["ambr"]["uplink_bps"] == 250_000_000, changed
    again = world.emulate("new-ue-again", NEW, 1, 901, "--scenario", "session")
    wait("the changed UE", lambda: again.poll() is not None)
    assert again.returncode == 0, world.log("new-ue-again")
    # It is removed after a question.
    page.get_by_role("button", name="Remove", exact=True).click()
    dialog = page.get_by_role("dialog")
    browser.assert_accessible("question")
    dialog.get_by_role("button", name="Cancel").click()
    assert NEW in world.subscribers()
    page.get_by_role("button", name="Remove", exact=True).click()
    dialog.get_by_role("button", name="Remove").click()
    browser.heading("Subscribers")
    assert NEW not in world.subscribers()


def msisdn(world, browser):
    """A subscriber gets an MSISDN in the form; its UE is found by it, and keeps its session."""
    number, supi, other = "4915112345678", f"imsi-{FIRST + 11}", f"imsi-{FIRST + 12}"
    address = lambda: next(ue for ue in world.status()["ues"] if supi in ue["supi"])["sessions"][0]["ipv4"]
    record = lambda own: world.subscribers()[own.removeprefix("imsi-")]
    before = address()
    page = browser.page
    save = page.get_by_role("button", name="Save changes")

    def form(own):
        page.goto(f"{browser.origin}/#/subscribers/{own}")
        browser.heading(f"Subscriber {own}")
        return page.get_by_role("group", name="Identity and keys").get_by_label("MSISDN")

    field = form(supi)
    expect(field).to_have_value("")
    # The browser refuses it: nothing is sent.
    field.fill("+49151")
    save.click()
    assert field.evaluate("field => !field.validity.valid") and not record(supi).get("msisdn")
    field.fill(number)
    save.click()
    wait("the MSISDN", lambda: record(supi).get("msisdn") == number)
    # Another subscriber does not get it.
    browser.expected.append("409")
    form(other).fill(number)
    save.click()
    expect(page.get_by_role("alert").filter(has_text="another subscriber has this MSISDN")).to_be_visible()
    browser.expected.clear()
    assert not record(other).get("msisdn")
    for part in ("Subscribers", "UEs"):
        browser.open(part)
        if part == "UEs":
            page.get_by_label("Search by").select_option("gpsi")
            page.get_by_label("Value").fill(f"msisdn-{number}")
        else:
            page.get_by_label("MSISDN").fill(number)
        page.get_by_role("button", name="Search").click()
        expect(browser.rows(part)).to_have_count(1)
        browser.assert_accessible(f"{part} by MSISDN")
        link = browser.rows(part).get_by_role("link", name=supi)
        expect(link).to_be_visible()
    link.click()
    browser.heading(f"UE {supi}")
    expect(page.get_by_role("region", name="Registration")).to_contain_text(number)
    assert address() == before, "the session is another one"
    form(supi).fill("")
    save.click()
    wait("no MSISDN", lambda: not record(supi).get("msisdn"))


def import_file(world, browser):
    """The errors of a CSV file are shown by line before anything is imported."""
    page = browser.page
    browser.open("Subscribers")
    lines = [f"{IMPORTED + n},{K},{OPC}" for n in range(20)]
    faulty = "\n".join(["imsi,k,opc", *lines[:4], f"12,{K},{OPC}", *lines[4:]]) + "\n"
    page.get_by_role("button", name="Import file").click()
    dialog = page.get_by_role("dialog")
    choose = lambda name, text: dialog.get_by_label("CSV or JSON file").set_input_files(
        {"name": name, "mimeType": "text/csv", "buffer": text.encode()}
    )
    choose("faulty.csv", faulty)
    dialog.get_by_role("button", name="Check file").click()
    errors = browser.rows("Errors of the file")
    expect(errors).to_have_count(1)
    expect(errors.first.get_by_role("cell").first).to_have_text("6")
    expect(dialog.get_by_role("button", name=re.compile("^Import "))).to_have_count(0)
    browser.assert_accessible("import")
    assert str(IMPORTED) not in world.subscribers()
    choose("good.csv", "\n".join(["imsi,k,opc", *lines]) + "\n")
    dialog.get_by_role("button", name="Check file").click()
    dialog.get_by_role("button", name="Import 20 subscribers").click()
    expect(dialog.get_by_text("Imported: 20 of 20 subscribers")).to_be_visible()
    assert all(str(IMPORTED + n) in world.subscribers() for n in range(20))
    dialog.get_by_role("button", name="Close").click()
    page.get_by_label("SUPI begins with").fill(f"imsi-{str(IMPORTED)[:13]}")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("of 20 subscribers")).to_be_visible()


def configuration(world, browser):
    """A value is changed with its differences shown, applied, and changed back; a wrong one is refused."""
    page = browser.page
    path = world.directory / "vireo.toml"
    before = path.read_text(encoding="utf-8")
    browser.open("Configuration")
    editor = page.get_by_label("Configuration in TOML")
    apply = page.get_by_role("button", name="Apply")
    text = editor.input_value()
    expect(apply).to_be_disabled()
    editor.fill(text.replace("10.45.0.0/16", "10.45.0.0/99"))
    page.get_by_role("button", name="Check changes").click()
    expect(page.get_by_text("not valid")).to_be_visible()
    expect(apply).to_be_disabled()
    editor.fill(text.replace('level = "info"', 'level = "debug"'))
    removed, added = page.locator(".diff .old"), page.locator(".diff .new")
    expect(removed).to_have_count(1)
    expect(removed).to_contain_text('level = "info"')
    expect(added).to_contain_text('level = "debug"')
    page.get_by_role("button", name="Check changes").click()
    expect(browser.rows("Changed keys").filter(has_text="log.level")).to_be_visible()
    browser.assert_accessible("configuration")
    apply.click()
    expect(page.get_by_role("status").filter(has_text="applied")).to_be_visible()
    assert path.read_text(encoding="utf-8") == before.replace('level = "info"', 'level = "debug"')
    page.get_by_role("button", name="Edit back").click()
    page.get_by_role("button", name="Check changes").click()
    apply.click()
    wait("the first file", lambda: path.read_text(encoding="utf-8") == before, 20)


def alarm(world, browser, gnb):
    """A RAN node that goes away raises an alarm on the open page."""
    page = browser.page
    browser.open("Alarms")
    rows = browser.rows("Alarms")
    lost = rows.filter(has_text=re.compile("ran node lost|gnb lost", re.IGNORECASE))
    expect(lost).to_have_count(0)
    world.end(gnb)
    expect(lost.first).to_be_visible(timeout=60_000)
    browser.assert_accessible("alarms")
    lost.first.get_by_role("button", name=re.compile("^Acknowledge")).click()
    expect(page.get_by_role("status").filter(has_text="acknowledged")).to_be_visible()
    # An acknowledged loss is over: the core no longer waits for the node.
    page.get_by_label("Show cleared alarms too").check()
    expect(lost.first).to_contain_text("api.token")


def keyboard(world, browser):
    """All is reached with the keyboard alone, in the order of the page, with the focus in view."""
    page = browser.page
    page.goto(f"{browser.origin}/#/")
    browser.heading("Overview")
    page.reload()
    browser.heading("Overview")
    focused = lambda: page.evaluate("document.activeElement?.textContent?.trim().slice(0, 40) ?? ''")
    page.keyboard.press("Tab")
    assert focused() == "Skip to content", focused()
    box = page.evaluate("(() => { const b = document.activeElement.getBoundingClientRect(); return b.x >= 0 && b.y >= 0; })()")
    assert box, "the link to the content is not in view"
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    # From the start of the page to a part of it.
    page.reload()
    browser.heading("Overview")
    names = []
    for _ in range(40):
        page.keyboard.press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        names.append(focused())
        assert outline != "none", f"the focus is not seen on {names[-1]}"
        if names[-1] == "UEs":
            break
    assert names[-1] == "UEs", names
    page.keyboard.press("Enter")
    browser.heading("UEs")
    expect(page.locator("#main")).to_be_focused()
    order = []
    for _ in range(3):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.labels?.[0]?.textContent ?? document.activeElement.textContent"))
    assert order == ["Search by", "Value", "Search"], order
    # A dialog takes the focus, and returns it when Escape closes it.
    page.goto(f"{browser.origin}/#/subscribers")
    browser.heading("Subscribers")
    opener = page.get_by_role("button", name="Import file")
    opener.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    wait("the focus in the dialog", lambda: page.evaluate("document.activeElement.closest('dialog') !== null"), 5)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(opener).to_be_focused()


def every_page(world, browser, what):
    """Each page keeps the rules of accessibility."""
    links = browser.page.get_by_role("navigation", name="Pages").get_by_role("link")
    names = links.all_text_contents()
    assert {"Overview", "UEs", "RAN nodes", "User plane"} <= set(names), names
    for name in names:
        browser.open(name)
        expect(browser.page.get_by_text("Loading …")).to_have_count(0)
        time.sleep(0.3)
        browser.assert_accessible(f"{name}, {what}")
    browser.open("Overview")


def reader(world, browser):
    """The role read sees no control that changes anything, and no whole SUPI."""
    page = browser.page
    names = page.get_by_role("navigation", name="Pages").get_by_role("link").all_text_contents()
    assert "Configuration" not in names and "Audit log" not in names, names
    changing = re.compile("add|import|remove|save|apply|drain|cordon|deregister|register again|acknowledge|move", re.IGNORECASE)
    for name in names:
        browser.open(name)
        expect(page.get_by_text("Loading …")).to_have_count(0)
        time.sleep(0.3)
        for role in ("button", "link"):
            found = page.get_by_role("main").get_by_role(role, name=changing).all_text_contents()
            assert not found, f"{name} has {found}"
    browser.open("UEs")
    expect(browser.rows("UEs").first).to_be_visible()
    assert str(FIRST) not in page.content()


def theme(world, browser):
    """The switch changes the colours and is remembered."""
    page = browser.page
    browser.open("Overview")
    ground = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = ground()
    page.get_by_label("Colours").select_option("dark")
    dark = ground()
    assert light != dark
    page.reload()
    browser.heading("Overview")
    assert ground() == dark
    page.get_by_label("Colours").select_option("system")
    assert ground() == light


def sign_out(world, browser):
    page = browser.page
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("API token")).to_be_visible()
    assert page.evaluate("JSON.stringify(sessionStorage)") == "{}"


def host_killed(world, browser, kill):
    """The map shows the end of a host and the takeover of its buckets."""
    page = browser.page
    browser.open("Cluster")
    hosts = page.locator("[data-host]")
    expect(hosts).to_have_count(2, timeout=60_000)
    before = [hosts.nth(n).get_attribute("data-host") for n in range(2)]
    browser.assert_accessible("cluster")
    kill()
    expect(page.locator("[data-lost]")).to_have_count(1, timeout=60_000)
    lost = page.locator("[data-lost]").get_attribute("data-lost")
    assert lost in before
    log = page.get_by_role("log")
    expect(log).to_contain_text(f"Host {lost} is lost")
    expect(log).to_contain_text("takes over")
    expect(page.get_by_role("list", name="Hosts")).to_contain_text("4,096 buckets")
    browser.assert_accessible("cluster after the end of a host")
