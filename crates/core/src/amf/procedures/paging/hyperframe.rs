//! Paging time windows of extended DRX (E-UTRA: TS 36.304 7.3; NR: TS 38.304 7.4).
//!
//! RAN nodes and the core count hyperframes from one time (TS 23.401 5.13a, TS 23.501 5.31.7.2). A
//! UE listens in a window of each cycle, which follows from its S-TMSI.

use crate::amf::context::{ExtendedDrx, hashed_id};
use vireo_types::{Duration, Instant, Tmsi};

/// Length of a hyperframe: 1024 radio frames of 10 ms.
const HYPERFRAME: Duration = Duration::from_millis(10_240);
/// Number of hyperframes after which H-SFN starts again.
const HYPERFRAMES: u64 = 1024;
/// Time by which a page precedes the window: nodes count hyperframes with a deviation of up to 2 s.
const PAGE_LEAD_TIME: Duration = Duration::from_secs(2);

/// Returns the time at which a UE is to be paged: now if its window is open, else shortly before
/// the next one. `epoch` is the start of a hyperframe with H-SFN 0.
pub(super) fn next_page(epoch: Instant, tmsi: Tmsi, drx: ExtendedDrx, now: Instant) -> Instant {
    let Some(cycle) = drx.hyperframes() else { return now };
    let (hashed, parts) = start_values(tmsi, drx);
    let (remainder, part) = (hashed % cycle, hashed / cycle % parts);
    let elapsed = now.0.saturating_sub(epoch.0);
    // A window of up to 40.96 s may extend over the four hyperframes that follow its own.
    let first = (elapsed / HYPERFRAME.0).saturating_sub(4);
    for number in first..first + 2 * cycle + 5 {
        if number % HYPERFRAMES % cycle != remainder {
            continue;
        }
        let start = epoch.0 + number * HYPERFRAME.0 + part * (HYPERFRAME.0 / parts);
        // The last DRX cycle of the window is too late for a page.
        let end = start + drx.window().0 - Duration::from_millis(1280).0 / 2;
        if end > now.0 {
            return Instant(start.saturating_sub(PAGE_LEAD_TIME.0)).max(now);
        }
    }
    now
}

/// Returns UE_ID_H, and the number of parts of a hyperframe in which a window may start.
fn start_values(tmsi: Tmsi, drx: ExtendedDrx) -> (u64, u64) {
    let (bits, parts) = if drx.is_nr() { (13, 8) } else { (10, 4) };
    (u64::from(hashed_id(tmsi) >> (32 - bits)), parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Instant = Instant(1_000_000_000_000);

    /// M-TMSI and its frame check sequence by zlib: its CRC-32 of reflected octets, reflected.
    const CHECKED: [(u32, u32); 4] =
        [(0, 0x38fb_2284), (0x1234_5678, 0x2075_75d4), (u32::MAX, u32::MAX), (0xc0ff_ee01, 0x7014_f500)];

    #[test]
    fn hashed_id_is_frame_check_sequence() {
        for (tmsi, expected) in CHECKED {
            assert_eq!(hashed_id(Tmsi(tmsi)), expected, "{tmsi:#x}");
        }
    }

    #[test]
    fn page_precedes_each_window() {
        let tmsi = Tmsi(0x1234_5678);
        let hashed = u64::from(hashed_id(tmsi));
        let eutra = (1..=13).map(|cycle| (ExtendedDrx { cycle, window: 1 }, hashed >> 22, 4));
        let nr = (3..=12).map(|cycle| (ExtendedDrx { cycle, window: 1 }.in_nr(), hashed >> 19, 8));
        let long = nr.clone().skip(2).map(|(drx, hashed, parts)| (drx.with_long_window(Some(31)), hashed, parts));
        for (drx, hashed, parts) in eutra.chain(nr).chain(long) {
            let frames = drx.hyperframes().expect("a cycle");
            let (mut now, mut last) = (EPOCH + Duration::from_secs(123_456), None);
            while next_page(EPOCH, tmsi, drx, now) == now {
                now = now + Duration::from_secs(1);
            }
            for _ in 0..5 {
                let page = next_page(EPOCH, tmsi, drx, now);
                let start = page + PAGE_LEAD_TIME;
                let offset = start.0 - EPOCH.0;
                let number = offset / HYPERFRAME.0;
                assert_eq!(number % HYPERFRAMES % frames, hashed % frames, "paging hyperframe");
                let part = hashed / frames % parts;
                assert_eq!(offset % HYPERFRAME.0, part * (HYPERFRAME.0 / parts), "start of the window");
                assert!(page >= now && last.is_none_or(|last| start.0 - last <= frames * HYPERFRAME.0 * 2));
                // The window is open: the page is for now.
                for open in [Duration::from_millis(1000), Duration(drx.window().0 - 1_000_000)] {
                    assert_eq!(next_page(EPOCH, tmsi, drx, start + open), start + open);
                }
                (now, last) = (start + drx.window(), Some(start.0));
            }
        }
        assert_eq!(next_page(EPOCH, tmsi, ExtendedDrx { cycle: 0, window: 0 }, EPOCH), EPOCH);
        assert_eq!(ExtendedDrx { cycle: 15, window: 15 }.hyperframes(), Some(256));
    }

    /// TS 24.008 table 10.5.5.32: 2.56 s, 5.12 s and 10.24 s have no window, then 2 to 1024
    /// hyperframes; other values are read as the first one.
    #[test]
    fn cycles_of_nr_double() {
        let frames: Vec<_> = (0..16).map(|value| ExtendedDrx::from_octet(value).in_nr().hyperframes()).collect();
        let windows = (1..=10).map(|power| Some(1 << power));
        let expected: Vec<_> = [None; 3].into_iter().chain(windows).chain([None; 3]).collect();
        assert_eq!(frames, expected);
        let drx = ExtendedDrx::from_octet(0x35).in_nr();
        assert_eq!((drx.octets(), drx.window(), drx.is_nr()), (vec![0x35], Duration::from_millis(5120), true));
    }
}
