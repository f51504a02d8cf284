//! One packet as the TUN device hands it over: a virtio-net header and an IP packet.
//!
//! With offload a packet may be a *super-packet* of up to 64 KiB that stands for many TCP segments.
//! The link charges it as those segments (each with its own headers and Ethernet framing) and can
//! cut it at segment borders, so that rate, queue and loss act per segment although one system
//! call moves dozens of them.
//!
//! ```text
//! 0        1          2         4          6            8             10
//! +--------+----------+---------+----------+------------+-------------+-----------
//! | flags  | gso type | hdr len | gso size | csum start | csum offset | IP packet
//! +--------+----------+---------+----------+------------+-------------+-----------
//! ```
//! The header is in the byte order of the machine, which the device driver demands.

/// Length of the virtio-net header that TUN puts before each packet.
pub(crate) const VNET_HEADER_LEN: usize = 10;
/// Largest read from the device: header and a 64 KiB packet.
pub(crate) const FRAME_BYTES_MAX: usize = VNET_HEADER_LEN + 65_536;
/// Ethernet around each IP packet on a real wire: preamble and start 8, addresses and type 14,
/// check sequence 4, gap 12.
pub(crate) const ETHERNET_BYTES: u64 = 38;
/// Ethernet pads shorter payloads.
const ETHERNET_PAYLOAD_MIN: u64 = 46;

const FLAG_NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_ECN: u8 = 0x80;

const IPV6_HEADER_LEN: usize = 40;
const PROTOCOL_TCP: u32 = 6;
const TCP_FIN_PSH: u8 = 0x01 | 0x08;
const TCP_CWR: u8 = 0x80;

/// A packet or super-packet, ready to be written to the other device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    bytes: Vec<u8>,
    /// Bytes of IP and TCP headers before the payload; 0 when the frame is one plain packet.
    headers_len: usize,
    /// Payload bytes per segment; 0 when the frame is one plain packet.
    segment_len: usize,
}

impl Frame {
    /// Takes what one read from the device returned. `None` when it is too short to be a packet.
    pub(crate) fn from_device(bytes: &[u8]) -> Option<Self> {
        if bytes.len() <= VNET_HEADER_LEN {
            return None;
        }
        let mut frame = Self {
            bytes: bytes.to_vec(),
            headers_len: 0,
            segment_len: 0,
        };
        if let Some((headers_len, segment_len)) = frame.super_packet_shape() {
            frame.headers_len = headers_len;
            frame.segment_len = segment_len;
        }
        Some(frame)
    }

    /// The bytes to write to a device, header included.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Headers and segment length when this is a TCP super-packet that can be cut.
    fn super_packet_shape(&self) -> Option<(usize, usize)> {
        let (flags, gso_type) = (self.bytes[0], self.bytes[1] & !GSO_ECN);
        if flags & FLAG_NEEDS_CSUM == 0 || !matches!(gso_type, GSO_TCPV4 | GSO_TCPV6) {
            return None;
        }
        let tcp_at = usize::from(self.header_field(6));
        let segment_len = usize::from(self.header_field(4));
        let data_offset = *self.packet().get(tcp_at + 12)?;
        let headers_len = tcp_at + usize::from(data_offset >> 4) * 4;
        (segment_len > 0 && headers_len < self.packet().len()).then_some((headers_len, segment_len))
    }

    fn header_field(&self, at: usize) -> u16 {
        u16::from_ne_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn packet(&self) -> &[u8] {
        &self.bytes[VNET_HEADER_LEN..]
    }

    /// How many packets this frame is on a real wire.
    pub(crate) fn segments(&self) -> u64 {
        if self.segment_len == 0 {
            return 1;
        }
        let payload = self.packet().len() - self.headers_len;
        payload.div_ceil(self.segment_len) as u64
    }

    /// Bytes that the frame occupies on a real wire: per segment its headers and framing.
    pub(crate) fn wire_bytes(&self) -> u64 {
        if self.segment_len == 0 {
            return (self.packet().len() as u64).max(ETHERNET_PAYLOAD_MIN) + ETHERNET_BYTES;
        }
        let payload = (self.packet().len() - self.headers_len) as u64;
        payload + self.segments() * (self.headers_len as u64 + ETHERNET_BYTES)
    }

    /// Wire bytes of one full segment of this frame.
    pub(crate) fn segment_wire_bytes(&self) -> u64 {
        if self.segment_len == 0 {
            return self.wire_bytes();
        }
        (self.headers_len + self.segment_len) as u64 + ETHERNET_BYTES
    }

    /// The segments `from..to` as a frame of their own. The headers are those the kernel would
    /// have made by segmenting: sequence number, lengths, identification and flags follow.
    pub(crate) fn part(&self, from: u64, to: u64) -> Self {
        let count = self.segments();
        assert!(from < to && to <= count, "segments {from}..{to} of {count}");
        if from == 0 && to == count {
            return self.clone();
        }
        let packet = self.packet();
        let start = self.headers_len + from as usize * self.segment_len;
        let end = (self.headers_len + to as usize * self.segment_len).min(packet.len());
        let mut bytes = Vec::with_capacity(VNET_HEADER_LEN + self.headers_len + end - start);
        bytes.extend_from_slice(&self.bytes[..VNET_HEADER_LEN + self.headers_len]);
        bytes.extend_from_slice(&packet[start..end]);
        let mut part = Self { bytes, ..*self };
        part.correct_tcp(from, to == count);
        part.correct_ip(from);
        part.correct_device_header(from, to - from);
        part
    }

    fn correct_tcp(&mut self, from: u64, is_last: bool) {
        let skipped_bytes = from * self.segment_len as u64;
        let tcp_at = VNET_HEADER_LEN + usize::from(self.header_field(6));
        let tcp = &mut self.bytes[tcp_at..];
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let sequence = sequence.wrapping_add(skipped_bytes as u32);
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        if !is_last {
            tcp[13] &= !TCP_FIN_PSH;
        }
        if from > 0 {
            tcp[13] &= !TCP_CWR;
        }
    }

    /// Lengths and checksums follow the shorter payload. The TCP checksum field of a packet with
    /// an unfinished checksum holds the sum of the pseudo header, which contains the length.
    fn correct_ip(&mut self, from: u64) {
        let tcp_at = usize::from(self.header_field(6));
        let sum_at = tcp_at + usize::from(self.header_field(8));
        let packet = &mut self.bytes[VNET_HEADER_LEN..];
        let tcp_len = (packet.len() - tcp_at) as u32;
        let addresses = if packet[0] >> 4 == 4 {
            let total_len = packet.len() as u16;
            packet[2..4].copy_from_slice(&total_len.to_be_bytes());
            let id = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(from as u16);
            packet[4..6].copy_from_slice(&id.to_be_bytes());
            packet[10..12].fill(0);
            let header_sum = !folded_sum(&packet[..usize::from(packet[0] & 15) * 4], 0);
            packet[10..12].copy_from_slice(&header_sum.to_be_bytes());
            12..20
        } else {
            let payload_len = (packet.len() - IPV6_HEADER_LEN) as u16;
            packet[4..6].copy_from_slice(&payload_len.to_be_bytes());
            8..40
        };
        let pseudo_sum = folded_sum(&packet[addresses], PROTOCOL_TCP + tcp_len);
        packet[sum_at..sum_at + 2].copy_from_slice(&pseudo_sum.to_be_bytes());
    }

    /// A single segment is no super-packet; congestion marks belong to the first segment only.
    fn correct_device_header(&mut self, from: u64, count: u64) {
        if from > 0 {
            self.bytes[1] &= !GSO_ECN;
        }
        if count == 1 {
            self.bytes[1] = GSO_NONE;
            self.bytes[4..6].copy_from_slice(&0u16.to_ne_bytes());
            self.headers_len = 0;
            self.segment_len = 0;
        }
    }
}

/// The Internet checksum before its complement: 16-bit words added with end-around carry.
fn folded_sum(bytes: &[u8], start: u32) -> u16 {
    let mut sum = u64::from(start);
    for pair in bytes.chunks(2) {
        sum += u64::from(u16::from_be_bytes([
            pair[0],
            pair.get(1).copied().unwrap_or(0),
        ]));
    }
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A TCP super-packet over IPv4 with `payload_len` bytes in segments of `segment_len`.
    pub(crate) fn super_packet(payload_len: usize, segment_len: u16) -> Frame {
        let headers_len = 40;
        let mut bytes = vec![0u8; VNET_HEADER_LEN + headers_len + payload_len];
        bytes[0] = FLAG_NEEDS_CSUM;
        bytes[1] = GSO_TCPV4;
        bytes[2..4].copy_from_slice(&(headers_len as u16).to_ne_bytes());
        bytes[4..6].copy_from_slice(&segment_len.to_ne_bytes());
        bytes[6..8].copy_from_slice(&20u16.to_ne_bytes());
        bytes[8..10].copy_from_slice(&16u16.to_ne_bytes());
        let packet = &mut bytes[VNET_HEADER_LEN..];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&((headers_len + payload_len) as u16).to_be_bytes());
        packet[9] = 6;
        packet[12..20].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
        packet[20 + 4..20 + 8].copy_from_slice(&(u32::MAX - 99).to_be_bytes());
        packet[20 + 12] = 5 << 4;
        packet[20 + 13] = 0x18 | 0x01;
        for (i, byte) in packet[headers_len..].iter_mut().enumerate() {
            *byte = i as u8;
        }
        Frame::from_device(&bytes).unwrap()
    }

    #[test]
    fn a_super_packet_costs_what_its_segments_cost() {
        let frame = super_packet(3 * 1448 + 10, 1448);
        assert_eq!(frame.segments(), 4);
        assert_eq!(
            frame.wire_bytes(),
            (3 * 1448 + 10) + 4 * (40 + ETHERNET_BYTES)
        );
        let small = Frame::from_device(&[0; VNET_HEADER_LEN + 20]).unwrap();
        assert_eq!(small.wire_bytes(), ETHERNET_PAYLOAD_MIN + ETHERNET_BYTES);
    }

    #[test]
    fn parts_join_to_the_whole_and_carry_right_headers() {
        let whole = super_packet(3 * 1448 + 10, 1448);
        let mut payload = Vec::new();
        for (from, to) in [(0, 1), (1, 3), (3, 4)] {
            let part = whole.part(from, to);
            let packet = part.packet();
            assert_eq!(part.segments(), to - from);
            let total_len = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            assert_eq!(total_len, packet.len());
            assert_eq!(
                folded_sum(&packet[..20], 0),
                0xFFFF,
                "the header sum proves itself"
            );
            let sequence = u32::from_be_bytes(packet[24..28].try_into().unwrap());
            assert_eq!(sequence, (u32::MAX - 99).wrapping_add(from as u32 * 1448));
            assert_eq!(
                packet[33] & TCP_FIN_PSH != 0,
                to == 4,
                "only the last one may finish"
            );
            assert_eq!(packet[5], from as u8);
            let pseudo = folded_sum(&packet[12..20], PROTOCOL_TCP + (packet.len() as u32 - 20));
            assert_eq!(packet[36..38], pseudo.to_be_bytes());
            assert_eq!(part.bytes[1] == GSO_NONE, to - from == 1);
            payload.extend_from_slice(&packet[40..]);
        }
        assert_eq!(payload, whole.packet()[40..]);
    }

    #[test]
    fn broken_headers_make_a_plain_packet_not_a_panic() {
        let mut bytes = super_packet(5000, 1448).bytes;
        bytes[6..8].copy_from_slice(&60_000u16.to_ne_bytes());
        assert_eq!(Frame::from_device(&bytes).unwrap().segments(), 1);
        assert!(Frame::from_device(&[0; VNET_HEADER_LEN]).is_none());
    }
}
