//! XML of a sheet, compressed during writing.

use super::zip::{Packed, ZipMember};
use crate::tpu::event::Value;
use crate::tpu::event::value::{write_float, write_int, write_percent};

/// Style of a cell. Its number is the index in `STYLES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain = 0,
    Title = 1,
    Head = 2,
    Column = 3,
    Figure = 4,
    Key = 5,
    Data = 6,
}

/// Maximum number of rows of a sheet that spreadsheet programs support.
pub const MAX_ROWS: usize = 1 << 20;
const PIECE: usize = 1 << 16;

#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Empty,
    Text(String),
    Number(f64),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

pub struct Sheet {
    member: ZipMember,
    text: Vec<u8>,
    row: usize,
    merged: Vec<String>,
}

impl Sheet {
    pub fn begin(number: usize, colour: &str, frozen: usize, widths: &[f64]) -> Sheet {
        let member = ZipMember::new(format!("xl/worksheets/sheet{number}.xml"));
        let mut sheet = Sheet { member, text: Vec::with_capacity(PIECE), row: 0, merged: Vec::new() };
        sheet.put_text(r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>"#);
        sheet.put_text(r#"<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">"#);
        sheet.put_text(&format!(
            r#"<sheetPr><tabColor rgb="FF{colour}"/></sheetPr><sheetViews><sheetView workbookViewId="0">"#
        ));
        if frozen > 0 {
            let top = frozen + 1;
            sheet.put_text(&format!(
                r#"<pane ySplit="{frozen}" topLeftCell="A{top}" activePane="bottomLeft" state="frozen"/>"#
            ));
        }
        sheet.put_text("</sheetView></sheetViews><cols>");
        for (index, width) in widths.iter().enumerate() {
            let number = index + 1;
            sheet.put_text(&format!(r#"<col min="{number}" max="{number}" width="{width:.1}" customWidth="1"/>"#));
        }
        sheet.put_text("</cols><sheetData>");
        sheet
    }

    fn put_text(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    pub fn row_count(&self) -> usize {
        self.row
    }

    pub fn write_row(&mut self, cells: &[(Cell, Style)]) {
        self.open_row();
        for (cell, style) in cells {
            match cell {
                Cell::Empty => self.put_text("<c/>"),
                Cell::Number(value) => {
                    self.open_cell(*style, b"><v>");
                    if value.fract() == 0.0 && value.abs() < 1e15 {
                        write_int(*value as i64, &mut self.text);
                    } else {
                        write_float(*value, &mut self.text);
                    }
                    self.put_text("</v></c>");
                }
                Cell::Text(text) => {
                    self.open_cell(*style, b" t=\"str\"><v>");
                    escape_xml(text, &mut self.text);
                    self.put_text("</v></c>");
                }
            }
        }
        self.close_row();
    }

    /// Writes a row of a record. The first `keys` columns are highlighted.
    pub fn write_record(&mut self, values: &[Value<'_>], is_hexadecimal: &[bool], keys: usize) {
        self.open_row();
        let is_empty = |value: &Value<'_>| matches!(value, Value::None | Value::Text("" | " "));
        let used = values.iter().rposition(|value| !is_empty(value)).map_or(0, |last| last + 1);
        for (index, value) in values[..used].iter().enumerate() {
            let style = if index < keys { Style::Key } else { Style::Data };
            match (value, is_hexadecimal[index]) {
                (Value::None | Value::Text("" | " "), _) => self.text.extend_from_slice(b"<c/>"),
                (Value::Int(number), true) => self.write_hexadecimal(style, *number as u128),
                (Value::Big(number), true) => self.write_hexadecimal(style, *number),
                (Value::Int(number), false) => {
                    self.open_cell(style, b"><v>");
                    write_int(*number, &mut self.text);
                    self.text.extend_from_slice(b"</v></c>");
                }
                (Value::Big(_) | Value::Float(_), _) => {
                    self.open_cell(style, b"><v>");
                    value.append_to(&mut self.text);
                    self.text.extend_from_slice(b"</v></c>");
                }
                (Value::Percent(part), _) => {
                    self.open_cell(style, b" t=\"str\"><v>");
                    write_percent(*part, &mut self.text);
                    self.text.extend_from_slice(b"</v></c>");
                }
                (Value::Text(text), _) => {
                    self.open_cell(style, b" t=\"str\"><v>");
                    escape_xml(text, &mut self.text);
                    self.text.extend_from_slice(b"</v></c>");
                }
            }
        }
        self.close_row();
    }

    fn write_hexadecimal(&mut self, style: Style, number: u128) {
        self.open_cell(style, b" t=\"str\"><v>0x");
        let digits = (number.max(1).ilog2() / 4) as usize;
        for digit in (0..=digits).rev() {
            self.text.push(b"0123456789abcdef"[(number >> (4 * digit) & 15) as usize]);
        }
        self.text.extend_from_slice(b"</v></c>");
    }

    fn open_cell(&mut self, style: Style, rest: &[u8]) {
        self.text.extend_from_slice(b"<c s=\"");
        self.text.push(b'0' + style as u8);
        self.text.push(b'"');
        self.text.extend_from_slice(rest);
    }

    fn open_row(&mut self) {
        self.row += 1;
        self.text.extend_from_slice(b"<row r=\"");
        write_int(self.row as i64, &mut self.text);
        self.text.extend_from_slice(b"\">");
    }

    fn close_row(&mut self) {
        self.text.extend_from_slice(b"</row>");
        if self.text.len() > PIECE {
            self.member.add(&self.text);
            self.text.clear();
        }
    }

    /// Merges a range of cells, such as `Q5:AD5`.
    pub fn merge_cells(&mut self, cells: impl Into<String>) {
        self.merged.push(cells.into());
    }

    pub fn finish(mut self) -> Packed {
        self.put_text("</sheetData>");
        if !self.merged.is_empty() {
            let merged: String = self.merged.iter().map(|cells| format!(r#"<mergeCell ref="{cells}"/>"#)).collect();
            self.put_text(&format!("<mergeCells count=\"{}\">{merged}</mergeCells>", self.merged.len()));
        }
        self.put_text("</worksheet>");
        self.member.add(&self.text);
        self.member.finish()
    }
}

/// Appends escaped text. Characters that XML cannot represent become question marks.
pub fn escape_xml(text: &str, out: &mut Vec<u8>) {
    for character in text.chars() {
        match character {
            '<' => out.extend_from_slice(b"&lt;"),
            '>' => out.extend_from_slice(b"&gt;"),
            '&' => out.extend_from_slice(b"&amp;"),
            '"' => out.extend_from_slice(b"&quot;"),
            '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push(b'?'),
            other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Style sheet of the workbook, with cell formats in the order of `Style`.
pub const STYLES: &str = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><fonts count="3"><font><sz val="11"/><name val="Calibri"/></font><font><b/><sz val="10"/><color rgb="FF000000"/><name val="等线"/></font><font><b/><sz val="10"/><color rgb="FFFFFFFF"/><name val="Calibri"/></font></fonts><fills count="7"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill><fill><patternFill patternType="solid"><fgColor rgb="FFFFFFFF"/></patternFill></fill><fill><patternFill patternType="solid"><fgColor rgb="FF548235"/></patternFill></fill><fill><patternFill patternType="solid"><fgColor rgb="FF305496"/></patternFill></fill><fill><patternFill patternType="solid"><fgColor rgb="FFF2F2F2"/></patternFill></fill><fill><patternFill patternType="solid"><fgColor rgb="FFFCE4D6"/></patternFill></fill></fills><borders count="2"><border/><border><left style="thin"/><right style="thin"/><top style="thin"/><bottom style="thin"/></border></borders><cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs><cellXfs count="7"><xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/><xf numFmtId="0" fontId="1" fillId="2" borderId="0" xfId="0" applyFont="1" applyFill="1"/><xf numFmtId="0" fontId="2" fillId="3" borderId="1" xfId="0" applyFont="1" applyFill="1" applyBorder="1"/><xf numFmtId="0" fontId="2" fillId="4" borderId="0" xfId="0" applyFont="1" applyFill="1"/><xf numFmtId="0" fontId="1" fillId="5" borderId="1" xfId="0" applyFont="1" applyFill="1" applyBorder="1"/><xf numFmtId="0" fontId="1" fillId="6" borderId="1" xfId="0" applyFont="1" applyFill="1" applyBorder="1" applyAlignment="1"><alignment horizontal="right" vertical="top"/></xf><xf numFmtId="0" fontId="1" fillId="0" borderId="0" xfId="0" applyFont="1"/></cellXfs><cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>"#;
