//! Table of measurements for CSV.

/// Columns and rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these columns and no rows. Column names include their units (`p99_us`).
    pub fn new(columns: &[&str]) -> Self {
        Table { columns: columns.iter().map(|c| (*c).to_owned()).collect(), rows: Vec::new() }
    }

    /// Appends a row in the order of the columns. Missing cells are empty; surplus cells are
    /// dropped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl ToString>) {
        let mut row: Vec<String> = cells.into_iter().map(|cell| cell.to_string()).take(self.columns.len()).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Returns the table with one row in `step`.
    #[must_use]
    pub fn every(&self, step: usize) -> Self {
        Table { columns: self.columns.clone(), rows: self.rows.iter().step_by(step).cloned().collect() }
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the table as CSV (RFC 4180) with a header line.
    pub fn csv(&self) -> Result<Vec<u8>, csv::Error> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(&self.columns)?;
        self.rows.iter().try_for_each(|row| writer.write_record(row))?;
        writer.into_inner().map_err(|e| e.into_error().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_rows_complete() {
        let mut table = Table::new(&["configuration", "at_s", "p99_us"]);
        assert!(table.is_empty());
        table.row(["S over H, \"fast\"", "1.5", "9"]);
        table.row(["unified"]);
        let text = String::from_utf8(table.csv().unwrap()).unwrap();
        assert_eq!(text, "configuration,at_s,p99_us\n\"S over H, \"\"fast\"\"\",1.5,9\nunified,,\n");
    }
}
