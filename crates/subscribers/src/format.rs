//! Records as text.

use vireo_types::PduSessionType;

/// The AMF field of four hexadecimal digits; refused without the separation bit that 5G AKA asks for (TS 33.501
/// 6.1.3.2).
pub fn parse_amf(text: &str) -> Result<[u8; 2], String> {
    let mut amf = [0; 2];
    hex::decode_to_slice(text, &mut amf).map_err(|_| format!("{text:?} is no AMF field: four hexadecimal digits"))?;
    if amf[0] & 0x80 == 0 {
        return Err(format!("{text:?} lacks the separation bit, which 5G needs: 8000 is usual"));
    }
    Ok(amf)
}

/// The session type of its name.
pub fn parse_type(text: &str) -> Result<PduSessionType, String> {
    match text.to_ascii_lowercase().as_str() {
        "ipv4" => Ok(PduSessionType::Ipv4),
        "ipv6" => Ok(PduSessionType::Ipv6),
        "ipv4v6" => Ok(PduSessionType::Ipv4v6),
        _ => Err(format!("{text:?} is no session type: ipv4, ipv6 or ipv4v6")),
    }
}
