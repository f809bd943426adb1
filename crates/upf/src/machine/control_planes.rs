//! Permissions and supervision parameters of control planes.

use std::net::IpAddr;
use std::time::Duration;
use vireo_types::{Network, is_inside};
use vireo_wire::pfcp::NodeId;

/// Control planes that may send to the UPF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane {
    /// Node ID that only these addresses may use, all at the same time. `None` permits any Node ID
    /// that no other entry names; the UPF binds it to the address that associates first.
    pub node_id: Option<NodeId>,
    /// Source addresses of the control plane.
    pub networks: Vec<Network>,
}

/// Parameters of PFCP associations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssociationConfig {
    /// Permitted control planes; empty: any.
    pub control_planes: Vec<ControlPlane>,
    /// Interval of Heartbeat Requests to a control plane (TS 29.244 6.2.2); `None`: the UPF sends
    /// none.
    pub heartbeat_interval: Option<Duration>,
    /// Number of unanswered Heartbeat Requests after which a control plane is silent.
    pub heartbeat_attempts: u8,
    /// Time after which the sessions of a silent control plane are removed.
    pub keep_sessions: Duration,
    /// Maximum number of associations.
    pub max: usize,
    /// Maximum number of associations of one address.
    pub max_per_address: usize,
}

impl Default for AssociationConfig {
    fn default() -> Self {
        AssociationConfig {
            control_planes: vec![],
            heartbeat_interval: Some(Duration::from_secs(10)),
            heartbeat_attempts: 3,
            keep_sessions: Duration::from_secs(600),
            max: 256,
            max_per_address: 8,
        }
    }
}

/// Permission of an address to use a Node ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    /// The address may not use the Node ID.
    Refused,
    /// The address may associate if the Node ID is not bound to another one.
    Unbound,
    /// The configuration assigns the Node ID to the address.
    Named,
}

impl AssociationConfig {
    /// Returns true if the UPF accepts messages of this address.
    pub(crate) fn admits(&self, address: IpAddr) -> bool {
        self.control_planes.is_empty() || self.control_planes.iter().any(|entry| entry.has(address))
    }

    /// Returns the permission of an address to use a Node ID.
    pub(crate) fn permit(&self, address: IpAddr, node_id: &NodeId) -> Permit {
        if self.control_planes.is_empty() {
            return Permit::Unbound;
        }
        let mut named = self.control_planes.iter().filter(|entry| entry.names(node_id)).peekable();
        if named.peek().is_some() {
            return if named.any(|entry| entry.has(address)) { Permit::Named } else { Permit::Refused };
        }
        let mut unnamed = self.control_planes.iter().filter(|entry| entry.node_id.is_none());
        if unnamed.any(|entry| entry.has(address)) { Permit::Unbound } else { Permit::Refused }
    }

    /// Returns true if the address may associate under that Node ID.
    pub fn may_associate(&self, address: IpAddr, node_id: &NodeId) -> bool {
        self.permit(address, node_id) != Permit::Refused
    }

    /// Permits only this control plane, unless the configuration names some.
    pub fn or_only(&mut self, address: IpAddr) {
        if self.control_planes.is_empty() {
            self.control_planes = vec![ControlPlane { node_id: None, networks: vec![Network::host(address)] }];
        }
    }

    /// Returns true if any control plane that reaches this address may associate, and the address
    /// is in no private network.
    pub(crate) fn is_open_at(&self, n4: IpAddr) -> bool {
        self.control_planes.is_empty() && !is_inside(n4)
    }
}

impl ControlPlane {
    fn has(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }

    /// Returns true if the entry names this Node ID. Domain names are compared case-insensitively
    /// (RFC 1035 2.3.3).
    fn names(&self, node_id: &NodeId) -> bool {
        match (&self.node_id, node_id) {
            (Some(NodeId::Fqdn(own)), NodeId::Fqdn(other)) => own.eq_ignore_ascii_case(other),
            (Some(own), other) => own == other,
            (None, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_node_ids_belong_to_their_addresses() {
        let entry = |node: Option<&str>, networks: &[&str]| ControlPlane {
            node_id: node.and_then(NodeId::fqdn),
            networks: networks.iter().map(|text| text.parse().expect("a network")).collect(),
        };
        let config = AssociationConfig {
            control_planes: vec![
                entry(Some("smf.example.org"), &["192.0.2.0/28", "2001:db8::1"]),
                entry(None, &["192.0.2.8", "198.51.100.0/24"]),
            ],
            ..AssociationConfig::default()
        };
        let permit = |address: &str, node: &str| {
            let address = address.parse().expect("an address");
            (config.admits(address), config.permit(address, &NodeId::fqdn(node).expect("a name")))
        };
        let (own, other) = ("SMF.example.org", "b.example.org");
        assert_eq!(permit("192.0.2.1", own), (true, Permit::Named));
        assert_eq!(permit("2001:db8::1", own), (true, Permit::Named));
        assert_eq!(permit("192.0.2.1", other), (true, Permit::Refused), "the address is of that node alone");
        assert_eq!(permit("192.0.2.8", other), (true, Permit::Unbound));
        assert_eq!(permit("198.51.100.7", own), (true, Permit::Refused), "the name is of those addresses alone");
        assert_eq!(permit("203.0.113.1", other), (false, Permit::Refused));
        let mut open = AssociationConfig::default();
        let anybody = "203.0.113.1".parse().expect("an address");
        assert_eq!(open.permit(anybody, &NodeId::from(anybody)), Permit::Unbound);
        assert!(open.is_open_at(anybody) && !open.is_open_at("10.0.0.1".parse().expect("an address")));
        open.or_only("127.0.0.1".parse().expect("an address"));
        assert!(!open.admits(anybody) && open.admits("127.0.0.1".parse().expect("an address")));
    }
}
