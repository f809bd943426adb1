"""Drives the web page in a browser against a real core: run.py VIREO [--output DIRECTORY] [--picture FILE] [--only STORY]

The core, its RAN and its data network are processes in network namespaces of their own. Exit code 0: every story ended as it
should, no request left the origin, and the console had nothing to complain about.
"""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

import stories
from page import Browser
from playwright.sync_api import sync_playwright
from world import API, FIRST, World, enter_own_network, wait


# Time before the picture, so that its curves have a past.
PICTURE_S = 60


class Run:
    """The stories that ran, with their times and failures."""

    def __init__(self, only, output):
        self.only, self.output = only, output
        self.failed = []

    def story(self, story, world, browser, *more, name=None, needs=None):
        name = name or story.__name__
        if self.only and self.only not in name:
            return
        if needs and needs not in world.routes():
            print(f"{name:<24} not run: this core does not offer {needs}", flush=True)
            return
        started = time.monotonic()
        try:
            story(world, browser, *more)
            print(f"{name:<24} ok {time.monotonic() - started:6.1f} s", flush=True)
        except Exception as error:  # The next story still says something.
            self.failed.append(name)
            picture = self.output / f"failed-{name}.png"
            browser.page.screenshot(path=picture)
            print(f"{name:<24} FAILED: {error}\n  picture: {picture}", flush=True)

    def close(self, browser, name):
        try:
            print(f"{name:<24} {browser.close()} requests, all to the origin", flush=True)
        except AssertionError as error:
            self.failed.append(name)
            print(f"{name:<24} FAILED: {error}", flush=True)


def one_core(run, vireo, output, picture, playwright):
    """Stories of `vireo run` with a RAN."""
    with tempfile.TemporaryDirectory(prefix="vireo-web-") as directory:
        world = World(vireo, directory)
        try:
            world.provision(stories.UES + stories.LOST_UES)
            core = world.start_core()
            half = stories.UES // 2
            again = ["--echo-v4", "192.168.128.2", "--rounds", "1000000", "--rate", "10"]
            world.emulate("idle", FIRST, half, 1, "--scenario", "idle-service", "--gnbs", "2", "--idle", "1000", *again)
            world.emulate("talking", FIRST + half, half, 100, "--scenario", "pauses", "--idle", "200", *again)
            lost = (stories.LOST_FIRST, stories.LOST_UES, 500)
            gnb = world.emulate("lost-gnb", *lost, "--scenario", "pauses", "--idle", "1000", *again)
            total = stories.UES + stories.LOST_UES
            wait("all UEs", lambda: world.status()["counts"]["sessions"] == total)
            token = world.token_file.read_text(encoding="utf-8").strip()
            browser = Browser(playwright, API)
            run.story(stories.sign_in, world, browser, token)
            if run.only:
                browser.sign_in(token)
            if picture:
                browser.open("Overview")
                time.sleep(PICTURE_S)
                browser.page.screenshot(path=picture)
            run.story(stories.overview, world, browser)
            for story in (stories.one_ue, stories.register_again, stories.subscriber, stories.msisdn, stories.import_file):
                run.story(story, world, browser)
            run.story(stories.configuration, world, browser, needs="/v1/configuration")
            run.story(stories.alarm, world, browser, gnb, needs="/v1/alarms")
            run.story(stories.keyboard, world, browser)
            run.story(stories.theme, world, browser)
            run.story(stories.sign_out, world, browser)
            run.close(browser, "browser")
            for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")):
                browser = Browser(playwright, API, width, scheme)
                browser.sign_in(token)
                what = f"{width}-{scheme}"
                run.story(stories.every_page, world, browser, what, name=f"every_page-{what}")
                browser.page.screenshot(path=output / f"overview-{what}.png")
                run.close(browser, f"browser-{what}")
            config = str(world.directory / "vireo.toml")
            secret = world.cli("token", "--config", config, "create", "--role", "read", "watcher").split()[-1]
            browser = Browser(playwright, API)
            browser.sign_in(secret)
            run.story(stories.reader, world, browser)
            run.close(browser, "browser-reader")
        finally:
            log = world.log("core")
            world.close()
            if run.failed:
                print(f"-- the core's log\n{log}")


def cluster(run, vireo, output, playwright):
    """The story of a host that is killed in a cluster under load."""
    with tempfile.TemporaryDirectory(prefix="vireo-web-") as directory:
        world = World(vireo, directory)
        try:
            world.provision(stories.UES)
            hosts = world.start_cluster()
            load = ["--scenario", "deregister", "--rounds", "1000000", "--rate", "10", "--gnbs", "2"]
            world.emulate("emulator", FIRST, stories.UES, 1, *load)
            browser = Browser(playwright, API)
            browser.sign_in(world.token_file.read_text(encoding="utf-8").strip())
            run.story(stories.host_killed, world, browser, lambda: world.end(hosts[0], signal.SIGKILL))
            browser.page.screenshot(path=output / "cluster.png")
            run.close(browser, "browser-cluster")
        finally:
            logs = "".join(f"-- {name}\n{world.log(name)}" for name in ("controller", "balancer", "host-1"))
            world.close()
            if run.failed:
                print(logs)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("vireo", type=Path)
    arguments.add_argument("--output", type=Path, default=Path("target/web"))
    arguments.add_argument("--picture", type=Path)
    arguments.add_argument("--only", default="")
    options = arguments.parse_args()
    enter_own_network()
    options.output.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    run = Run(options.only, options.output)
    with sync_playwright() as playwright:
        if options.only != stories.host_killed.__name__:
            one_core(run, options.vireo.resolve(), options.output, options.picture, playwright)
        if options.only in ("", stories.host_killed.__name__):
            cluster(run, options.vireo.resolve(), options.output, playwright)
    if run.failed:
        sys.exit(f"failed: {', '.join(run.failed)}")


if __name__ == "__main__":
    main()
