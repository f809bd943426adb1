//! Capacity model of a user plane: modules by market and device density.
//!
//! The model is from Kumar et al., "Scaling Telecom Core Network Functions in Public Cloud
//! Infrastructure", section IV. `PPS = N p` (1) and `N = k A` (2), over a matrix of markets `p` and
//! densities `k` (3). A unit of one core and one port forwards at most `1 / (T_n + T_c)` packets
//! (4, 5). Demand beyond one module requires more modules.

/// Processing time of a packet in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketTime {
    /// `T_n`: reception and transmission.
    pub network: f64,
    /// `T_c`: rule lookup and decision.
    pub compute: f64,
    /// Other time: allocation, statistics, charging.
    pub other: f64,
}

impl PacketTime {
    /// Table 2 of the paper: system calls for every packet of 128 octets. The paper states 3,147
    /// for `T_n` although its parts sum to 3,148.
    pub const PAPER: PacketTime = PacketTime { network: 3147.0, compute: 259.0, other: 288.0 };

    /// Returns `T_p` in ns.
    pub fn total(&self) -> f64 {
        self.network + self.compute + self.other
    }

    /// Returns the scale-up limit: packets per second of one core.
    pub fn limit(&self) -> f64 {
        1e9 / self.total()
    }

    /// Returns the share of reception and transmission in a packet's time.
    pub fn network_share(&self) -> f64 {
        self.network / self.total()
    }
}

/// Module `M`: the unit of added capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Module {
    /// Capacity in packets per second in each direction.
    pub pps: f64,
    /// Capacity in devices, regardless of their traffic.
    pub devices: f64,
    /// Cores of one module.
    pub cores: u32,
}

impl Module {
    /// Module of the paper: 50,000 devices, 250,000 packets per second in each direction, two
    /// cores.
    pub const PAPER: Module = Module { pps: 250_000.0, devices: 50_000.0, cores: 2 };

    /// Creates a module whose cores reach `utilisation` of the scale-up limit, half of it in each
    /// direction.
    pub fn new(time: PacketTime, cores: u32, devices: f64, utilisation: f64) -> Self {
        Module { pps: time.limit() * f64::from(cores) / 2.0 * utilisation, devices, cores }
    }

    /// Returns the modules for this many devices and packets per second in each direction: at least
    /// one if there is a device.
    pub fn needed(&self, devices: f64, pps: f64) -> u64 {
        if devices <= 0.0 {
            return 0;
        }
        (pps / self.pps).max(devices / self.devices).ceil().max(1.0) as u64
    }
}

/// Demand to plan for.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Packets per second of one device in each direction, by market: `p`.
    pub markets: Vec<f64>,
    /// Active devices per square kilometre: `k`.
    pub densities: Vec<f64>,
    /// Area in square kilometres: `A`.
    pub area: f64,
}

/// One cell of the matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Packets per second of one device: `p`.
    pub market: f64,
    /// Devices per square kilometre: `k`.
    pub density: f64,
    /// Number of devices: `N`.
    pub devices: f64,
    /// Total packets per second in each direction: `PPS`.
    pub pps: f64,
    pub modules: u64,
    /// Cores of all modules.
    pub cores: u64,
}

/// Returns the matrix, market by market.
pub fn plan(demand: &Demand, module: &Module) -> Vec<Cell> {
    let cell = |market: f64, density: f64| {
        let devices = density * demand.area;
        let pps = devices * market;
        let modules = module.needed(devices, pps);
        Cell { market, density, devices, pps, modules, cores: modules * u64::from(module.cores) }
    };
    let of = |market: &f64| demand.densities.iter().map(|density| cell(*market, *density)).collect::<Vec<Cell>>();
    demand.markets.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Table 2 and the sentences below it.
    #[test]
    fn scale_up_limit_matches_paper() {
        let time = PacketTime::PAPER;
        assert_eq!(time.total(), 3694.0);
        assert!((time.limit() / 1000.0 - 270.0).abs() < 1.0, "270 Kpps: {}", time.limit());
        assert!(time.network_share() > 0.8, "more than 80%");
    }

    /// Section VII: 2 Mpps in each direction for 250,000 devices need 8 modules; in the cloud, 10
    /// of 200 Kpps.
    #[test]
    fn scale_out_matches_paper() {
        assert_eq!(Module::PAPER.needed(250_000.0, 2e6), 8);
        assert_eq!(Module { pps: 200_000.0, ..Module::PAPER }.needed(250_000.0, 2e6), 10);
        let eight = plan(&Demand { markets: vec![8.0], densities: vec![2_500.0], area: 100.0 }, &Module::PAPER);
        assert_eq!((eight[0].devices, eight[0].pps, eight[0].modules, eight[0].cores), (250_000.0, 2e6, 8, 16));
        let two_cores = Module::new(PacketTime::PAPER, 2, 50_000.0, 1.0);
        assert!(
            (two_cores.pps - 250_000.0).abs() / 250_000.0 < 0.1,
            "two cores at 270 Kpps in all each: {two_cores:?}"
        );
    }

    /// Section V.B: 500 Kpps for 50,000 devices are 10 packets per second each.
    #[test]
    fn module_at_500_kpps_matches_paper() {
        let module = Module { pps: 500_000.0, ..Module::PAPER };
        assert_eq!(module.needed(50_000.0, 50_000.0 * 10.0), 1);
        assert_eq!(module.needed(50_000.0, 50_000.0 * 10.1), 2);
    }

    #[test]
    fn devices_limit_where_packets_do_not() {
        assert_eq!(Module::PAPER.needed(1_000_000.0, 1_000_000.0), 20, "an EPC site of 5G in table 1, IoT");
        assert_eq!((Module::PAPER.needed(0.0, 0.0), Module::PAPER.needed(1.0, 1.0)), (0, 1));
    }

    proptest! {
        #[test]
        fn modules_hold_what_they_are_for(market in 0.1..50.0, density in 0.1..10_000.0, area in 0.1..10_000.0) {
            let demand = Demand { markets: vec![market], densities: vec![density], area };
            let cell = plan(&demand, &Module::PAPER)[0];
            let modules = cell.modules as f64;
            prop_assert!(modules * Module::PAPER.pps >= cell.pps && modules * Module::PAPER.devices >= cell.devices);
            let fewer = modules - 1.0;
            prop_assert!(fewer * Module::PAPER.pps < cell.pps || fewer * Module::PAPER.devices < cell.devices);
        }
    }
}
