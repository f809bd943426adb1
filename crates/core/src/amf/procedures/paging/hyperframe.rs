//! Paging time windows of extended DRX in E-UTRA (TS 36.304 7.3).
//!
//! eNBs and the core count hyperframes from one time (TS 23.401 5.13a). A UE listens in a window of
//! each cycle, which follows from its S-TMSI.

use crate::amf::context::ExtendedDrx;
use vireo_types::{Duration, Instant, Tmsi};

/// Length of a hyperframe: 1024 radio frames of 10 ms.
const HYPERFRAME: Duration = Duration::from_millis(10_240);
/// Number of hyperframes after which H-SFN starts again.
const HYPERFRAMES: u64 = 1024;
/// A quarter of a hyperframe, the granularity of the start of a window.
const QUARTER: Duration = Duration::from_millis(2560);
/// Time by which a page precedes the window: eNBs count hyperframes with a deviation of 1 s to 2 s.
const LEAD: Duration = Duration::from_secs(2);

/// Returns the time at which a UE is to be paged: now if its window is open, else shortly before
/// the next one. `epoch` is the start of a hyperframe with H-SFN 0.
pub(super) fn next_page(epoch: Instant, tmsi: Tmsi, drx: ExtendedDrx, now: Instant) -> Instant {
    let Some(cycle) = drx.hyperframes() else { return now };
    let hashed = u64::from(hashed_id(tmsi) >> 22);
    let (remainder, quarter) = (hashed % cycle, hashed / cycle % 4);
    let elapsed = now.0.saturating_sub(epoch.0);
    // A window may extend over the two hyperframes that follow its own.
    let first = (elapsed / HYPERFRAME.0).saturating_sub(2);
    for number in first..first + 2 * cycle + 3 {
        if number % HYPERFRAMES % cycle != remainder {
            continue;
        }
        let start = epoch.0 + number * HYPERFRAME.0 + quarter * QUARTER.0;
        // The last DRX cycle of the window is too late for a page.
        let end = start + drx.window().0 - Duration::from_millis(1280).0 / 2;
        if end > now.0 {
            return Instant(start.saturating_sub(LEAD.0)).max(now);
        }
    }
    now
}

/// Returns Hashed_ID: the frame check sequence of the 32 low bits of the S-TMSI.
fn hashed_id(tmsi: Tmsi) -> u32 {
    !tmsi.0.to_be_bytes().into_iter().fold(u32::MAX, |crc, octet| {
        (0..8).fold(crc ^ u32::from(octet) << 24, |crc, _| crc << 1 ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 })
    })
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
        let hashed = u64::from(hashed_id(tmsi) >> 22);
        for cycle in 1..=13 {
            let drx = ExtendedDrx { cycle, window: 1 };
            let frames = drx.hyperframes().expect("a cycle");
            let (mut now, mut last) = (EPOCH + Duration::from_secs(123_456), None);
            while next_page(EPOCH, tmsi, drx, now) == now {
                now = now + Duration::from_secs(1);
            }
            for _ in 0..5 {
                let page = next_page(EPOCH, tmsi, drx, now);
                let start = page + LEAD;
                let offset = start.0 - EPOCH.0;
                let number = offset / HYPERFRAME.0;
                assert_eq!(number % HYPERFRAMES % frames, hashed % frames, "paging hyperframe");
                assert_eq!(offset % HYPERFRAME.0, hashed / frames % 4 * QUARTER.0, "start of the window");
                assert!(page >= now && last.is_none_or(|last| start.0 - last <= frames * HYPERFRAME.0 * 2));
                // The window is open: the page is for now.
                let open = start + Duration::from_millis(1000);
                assert_eq!(next_page(EPOCH, tmsi, drx, open), open);
                (now, last) = (start + drx.window(), Some(start.0));
            }
        }
        assert_eq!(next_page(EPOCH, tmsi, ExtendedDrx { cycle: 0, window: 0 }, EPOCH), EPOCH);
        assert_eq!(ExtendedDrx { cycle: 15, window: 15 }.hyperframes(), Some(256));
    }
}
