use crate::pfcp::Error;
use crate::pfcp::ie::{Element, Reader};

fn flags(fields: &[Option<u64>]) -> u8 {
    fields.iter().enumerate().fold(0, |flags, (n, field)| flags | u8::from(field.is_some()) << n)
}

fn put_numbers(out: &mut Vec<u8>, fields: &[Option<u64>]) {
    out.push(flags(fields));
    out.extend(fields.iter().flatten().flat_map(|n| n.to_be_bytes()));
}

/// Defines elements of up to three octet counts.
macro_rules! volumes {
    ($($(#[$m:meta])* $name:ident = $id:literal;)*) => {$(
        $(#[$m])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name {
            /// Octets in both directions.
            pub total: Option<u64>,
            /// Octets in uplink direction.
            pub uplink: Option<u64>,
            /// Octets in downlink direction.
            pub downlink: Option<u64>,
        }

        impl Element for $name {
            const ID: u16 = $id;

            fn decode(octets: &[u8]) -> Result<Self, Error> {
                let mut r = Reader::new($id, octets);
                let flags = r.u8()?;
                Ok($name {
                    total: r.when(flags & 1 != 0, Reader::u64)?,
                    uplink: r.when(flags & 2 != 0, Reader::u64)?,
                    downlink: r.when(flags & 4 != 0, Reader::u64)?,
                })
            }

            fn encode(&self, out: &mut Vec<u8>) {
                put_numbers(out, &[self.total, self.uplink, self.downlink]);
            }
        }
    )*};
}

volumes! {
    /// Volume Threshold (TS 29.244 8.2.13).
    VolumeThreshold = 31;
    /// Volume Quota (TS 29.244 8.2.50).
    VolumeQuota = 73;
    /// Subsequent Volume Threshold (TS 29.244 8.2.16).
    SubsequentVolumeThreshold = 34;
    /// Subsequent Volume Quota (TS 29.244 8.2.86).
    SubsequentVolumeQuota = 121;
}

/// Volume Measurement (TS 29.244 8.2.44).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VolumeMeasurement {
    /// Octets in both directions.
    pub total: Option<u64>,
    /// Octets in uplink direction.
    pub uplink: Option<u64>,
    /// Octets in downlink direction.
    pub downlink: Option<u64>,
    /// Packets in both directions.
    pub total_packets: Option<u64>,
    /// Packets in uplink direction.
    pub uplink_packets: Option<u64>,
    /// Packets in downlink direction.
    pub downlink_packets: Option<u64>,
}

impl Element for VolumeMeasurement {
    const ID: u16 = 66;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(Self::ID, octets);
        let flags = r.u8()?;
        let mut field = |n: u8| r.when(flags & (1 << n) != 0, Reader::u64);
        Ok(VolumeMeasurement {
            total: field(0)?,
            uplink: field(1)?,
            downlink: field(2)?,
            total_packets: field(3)?,
            uplink_packets: field(4)?,
            downlink_packets: field(5)?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let packets = [self.total_packets, self.uplink_packets, self.downlink_packets];
        let [a, b, c] = packets;
        put_numbers(out, &[self.total, self.uplink, self.downlink, a, b, c]);
    }
}

/// Dropped DL Traffic Threshold (TS 29.244 8.2.49).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DroppedDlTrafficThreshold {
    /// Number of dropped downlink packets.
    pub packets: Option<u64>,
    /// Octets in dropped downlink packets.
    pub octets: Option<u64>,
}

impl Element for DroppedDlTrafficThreshold {
    const ID: u16 = 72;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(Self::ID, octets);
        let flags = r.u8()?;
        let packets = r.when(flags & 1 != 0, Reader::u64)?;
        Ok(DroppedDlTrafficThreshold { packets, octets: r.when(flags & 2 != 0, Reader::u64)? })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_numbers(out, &[self.packets, self.octets]);
    }
}
