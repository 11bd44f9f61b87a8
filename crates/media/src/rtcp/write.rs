//! Writing of compound packets.

use super::{CNAME, DESCRIPTION, GOODBYE, MOST, RECEIVER_REPORT, ReportBlock, SENDER_REPORT, SenderInfo};

/// Writer of a compound packet. The first packet should be a report, and one should be a description (RFC 3550 section 6.1).
#[derive(Debug)]
pub struct CompoundWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> CompoundWriter<'a> {
    /// Creates a writer that appends to `out`.
    pub const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Appends the SR of the SSRC `source`, with the first 31 blocks.
    pub fn sender_report(&mut self, source: u32, info: &SenderInfo, blocks: &[ReportBlock]) -> &mut Self {
        let blocks = &blocks[..blocks.len().min(MOST)];
        self.packet(SENDER_REPORT, blocks.len(), |out| {
            out.extend(source.to_be_bytes());
            out.extend(info.ntp.to_be_bytes());
            [info.timestamp, info.packets, info.octets].iter().for_each(|word| out.extend(word.to_be_bytes()));
            blocks.iter().for_each(|block| block.write(out));
        })
    }

    /// Appends the RR of the SSRC `source`, with the first 31 blocks.
    pub fn receiver_report(&mut self, source: u32, blocks: &[ReportBlock]) -> &mut Self {
        let blocks = &blocks[..blocks.len().min(MOST)];
        self.packet(RECEIVER_REPORT, blocks.len(), |out| {
            out.extend(source.to_be_bytes());
            blocks.iter().for_each(|block| block.write(out));
        })
    }

    /// Appends an SDES with the canonical name of the SSRC `source`, of which the first 255 bytes count.
    pub fn description(&mut self, source: u32, cname: &[u8]) -> &mut Self {
        let cname = &cname[..cname.len().min(255)];
        self.packet(DESCRIPTION, 1, |out| {
            out.extend(source.to_be_bytes());
            out.extend([CNAME, cname.len() as u8]);
            out.extend_from_slice(cname);
            // The end of the items.
            out.push(0);
        })
    }

    /// Appends a BYE for the first 31 SSRCs. Only the first 255 bytes of the reason are written; the reason may be
    /// empty.
    pub fn goodbye(&mut self, sources: &[u32], reason: &[u8]) -> &mut Self {
        let sources = &sources[..sources.len().min(MOST)];
        let reason = &reason[..reason.len().min(255)];
        self.packet(GOODBYE, sources.len(), |out| {
            sources.iter().for_each(|source| out.extend(source.to_be_bytes()));
            if !reason.is_empty() {
                out.push(reason.len() as u8);
                out.extend_from_slice(reason);
            }
        })
    }

    /// Appends feedback of the SSRC `source` about the SSRC `media` (RFC 4585 section 6.1). `format`: FMT, 0 to 31. `control` writes the control
    /// information.
    pub fn feedback(
        &mut self,
        packet_type: u8,
        format: u8,
        (source, media): (u32, u32),
        control: impl FnOnce(&mut Vec<u8>),
    ) -> &mut Self {
        self.packet(packet_type, usize::from(format & 31), |out| {
            out.extend(source.to_be_bytes());
            out.extend(media.to_be_bytes());
            control(out);
        })
    }

    /// Appends a packet, filled up with zeros to whole words.
    fn packet(&mut self, packet_type: u8, count: usize, write: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        let start = self.out.len();
        self.out.extend([0x80 | count as u8, packet_type, 0, 0]);
        write(self.out);
        let length = (self.out.len() - start).next_multiple_of(4);
        self.out.resize(start + length, 0);
        let [high, low] = ((length / 4 - 1) as u16).to_be_bytes();
        self.out[start + 2..start + 4].copy_from_slice(&[high, low]);
        self
    }
}
