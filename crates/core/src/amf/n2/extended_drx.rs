//! Extended DRX of E-UTRA and NR in NGAP (TS 38.413 9.3.1.154, 9.3.1.227).

use crate::amf::context::{ExtendedDrx, extended_drx_values};
use vireo_wire::ngap::*;

/// Returns E-UTRA Paging eDRX Information. Its values are in the order of NAS.
pub(crate) fn eutra_extended_drx(drx: ExtendedDrx) -> EUTRAPagingeDRXInformation {
    let (cycle, window) = extended_drx_values!(drx, EUTRAPagingEDRXCycle, EUTRAPagingTimeWindow);
    EUTRAPagingeDRXInformation::new(cycle, window, None)
}

/// Returns NR Paging eDRX Information. Its values are in the order of NAS.
pub(crate) fn nr_extended_drx(drx: ExtendedDrx) -> NRPagingeDRXInformation {
    use NRPagingEDRXCycle as Cycle;
    use NRPagingTimeWindow as Window;
    const CYCLES: [Cycle; 13] = [
        Cycle::hfquarter,
        Cycle::hfhalf,
        Cycle::hf1,
        Cycle::hf2,
        Cycle::hf4,
        Cycle::hf8,
        Cycle::hf16,
        Cycle::hf32,
        Cycle::hf64,
        Cycle::hf128,
        Cycle::hf256,
        Cycle::hf512,
        Cycle::hf1024,
    ];
    const WINDOWS: [Window; 32] = [
        Window::s1,
        Window::s2,
        Window::s3,
        Window::s4,
        Window::s5,
        Window::s6,
        Window::s7,
        Window::s8,
        Window::s9,
        Window::s10,
        Window::s11,
        Window::s12,
        Window::s13,
        Window::s14,
        Window::s15,
        Window::s16,
        Window::s17,
        Window::s18,
        Window::s19,
        Window::s20,
        Window::s21,
        Window::s22,
        Window::s23,
        Window::s24,
        Window::s25,
        Window::s26,
        Window::s27,
        Window::s28,
        Window::s29,
        Window::s30,
        Window::s31,
        Window::s32,
    ];
    // Other values are read as the first one (TS 24.008 table 10.5.5.32).
    let cycle = CYCLES.get(usize::from(drx.cycle & 15)).copied().unwrap_or(Cycle::hfquarter);
    let window = drx.hyperframes().map(|_| WINDOWS[usize::from(drx.window_value())]);
    NRPagingeDRXInformation::new(cycle, window, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cycle without paging hyperframe has no window.
    #[test]
    fn cycles_of_nr_keep_their_order() {
        let values = |octet| {
            let drx = nr_extended_drx(ExtendedDrx::from_octet(octet).in_nr());
            (drx.nr_paging_edrx_cycle, drx.nr_paging_time_window)
        };
        assert_eq!(values(0xf0), (NRPagingEDRXCycle::hfquarter, None));
        assert_eq!(values(0xf2), (NRPagingEDRXCycle::hf1, None));
        assert_eq!(values(0x03), (NRPagingEDRXCycle::hf2, Some(NRPagingTimeWindow::s1)));
        assert_eq!(values(0xfc), (NRPagingEDRXCycle::hf1024, Some(NRPagingTimeWindow::s16)));
        assert_eq!(values(0xfd), (NRPagingEDRXCycle::hfquarter, None));
    }

    /// TS 24.008 10.5.5.32: the second octet has windows of up to 40.96 s.
    #[test]
    fn second_octet_has_long_windows() {
        for (octet, window) in
            [(0_u8, NRPagingTimeWindow::s1), (0x10, NRPagingTimeWindow::s17), (31, NRPagingTimeWindow::s32)]
        {
            let drx = ExtendedDrx::from_octet(0x37).in_nr().with_long_window(Some(octet));
            assert_eq!(nr_extended_drx(drx).nr_paging_time_window, Some(window));
            assert_eq!(drx.octets(), [octet.min(15) << 4 | 7, octet]);
            assert_eq!(drx.window().as_micros(), (u64::from(octet) + 1) * 1_280_000);
        }
        let drx = ExtendedDrx::from_octet(0x37).in_nr().with_long_window(None);
        assert_eq!(
            (nr_extended_drx(drx).nr_paging_time_window, drx.octets()),
            (Some(NRPagingTimeWindow::s4), vec![0x37])
        );
    }
}
