//! Capacity planning for a user plane (Kumar et al., "Scaling Telecom Core Network Functions in Public Cloud
//! Infrastructure", section IV): how many modules a market and a density of devices need.
//!
//! `PPS = N p` (1), `N = k A` (2), over a matrix of markets `p` and densities `k` (3); a unit of one core and one port
//! cannot do more than `1 / (T_n + T_c)` (4, 5), and what one module does not do more modules do.

/// The time of a packet in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketTime {
    /// `T_n`: receiving and sending.
    pub network: f64,
    /// `T_c`: looking rules up and deciding.
    pub compute: f64,
    /// What is neither: allocation, statistics, charging.
    pub other: f64,
}

impl PacketTime {
    /// The paper's table 2: system calls for every packet of 128 octets. `T_n` is given as 3,147 though its parts sum to
    /// 3,148.
    pub const PAPER: PacketTime = PacketTime { network: 3147.0, compute: 259.0, other: 288.0 };

    /// `T_p` in ns.
    pub fn total(&self) -> f64 {
        self.network + self.compute + self.other
    }

    /// The scale-up limit: packets a second of one core.
    pub fn limit(&self) -> f64 {
        1e9 / self.total()
    }

    /// What part of a packet's time receiving and sending are.
    pub fn network_share(&self) -> f64 {
        self.network / self.total()
    }
}

/// A module `M`: what capacity is added in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Module {
    /// Packets a second that it takes in each direction.
    pub pps: f64,
    /// Devices that it takes, whatever they send.
    pub devices: f64,
    /// Cores of one module.
    pub cores: u32,
}

impl Module {
    /// The paper's: 50,000 devices, 250,000 packets a second in each direction, two cores.
    pub const PAPER: Module = Module { pps: 250_000.0, devices: 50_000.0, cores: 2 };

    /// A module whose cores do what the scale-up limit says, half of it in each direction, to `utilisation` of it.
    pub fn of(time: PacketTime, cores: u32, devices: f64, utilisation: f64) -> Self {
        Module { pps: time.limit() * f64::from(cores) / 2.0 * utilisation, devices, cores }
    }

    /// Modules for so many devices and so many packets a second in each direction: at least one where there is anybody.
    pub fn needed(&self, devices: f64, pps: f64) -> u64 {
        if devices <= 0.0 {
            return 0;
        }
        (pps / self.pps).max(devices / self.devices).ceil().max(1.0) as u64
    }
}

/// What is planned for.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Packets a second of one device in each direction, by market: `p`.
    pub markets: Vec<f64>,
    /// Active devices per square kilometre: `k`.
    pub densities: Vec<f64>,
    /// Square kilometres: `A`.
    pub area: f64,
}

/// One cell of the matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// `p`.
    pub market: f64,
    /// `k`.
    pub density: f64,
    /// `N`.
    pub devices: f64,
    /// `PPS` in each direction.
    pub pps: f64,
    /// Modules.
    pub modules: u64,
    /// Cores of all modules.
    pub cores: u64,
}

/// The matrix, market by market.
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
    fn the_papers_scale_up_limit() {
        let time = PacketTime::PAPER;
        assert_eq!(time.total(), 3694.0);
        assert!((time.limit() / 1000.0 - 270.0).abs() < 1.0, "270 Kpps: {}", time.limit());
        assert!(time.network_share() > 0.8, "more than 80%");
    }

    /// Section VII: 2 Mpps in each direction for 250,000 devices by 8 modules; by 10 of 200 Kpps in the cloud.
    #[test]
    fn the_papers_scale_out() {
        assert_eq!(Module::PAPER.needed(250_000.0, 2e6), 8);
        assert_eq!(Module { pps: 200_000.0, ..Module::PAPER }.needed(250_000.0, 2e6), 10);
        let eight = plan(&Demand { markets: vec![8.0], densities: vec![2_500.0], area: 100.0 }, &Module::PAPER);
        assert_eq!((eight[0].devices, eight[0].pps, eight[0].modules, eight[0].cores), (250_000.0, 2e6, 8, 16));
        let two_cores = Module::of(PacketTime::PAPER, 2, 50_000.0, 1.0);
        assert!(
            (two_cores.pps - 250_000.0).abs() / 250_000.0 < 0.1,
            "two cores at 270 Kpps in all each: {two_cores:?}"
        );
    }

    /// Section V.B: 500 Kpps for 50,000 devices are 10 packets a second each.
    #[test]
    fn the_papers_module_at_500_kpps() {
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
