//! Groups of bars: medians with whiskers from the smallest to the largest run, or means with
//! confidence intervals.

use super::PlotError;
use super::axis::{Axis, Span};
use super::frame::{self, Entry, LabelledSpan, Sample, colour};
use plotters::prelude::*;
use vireo_bench::results::Measured;

/// Bars of one colour.
#[derive(Clone, Debug)]
pub struct BarSeries {
    /// Name in the legend.
    pub name: String,
    /// Value of each group; `None` where nothing was measured.
    pub values: Vec<Option<Measured>>,
    /// Value of the paper for each group, drawn as a dashed line over the bar.
    pub paper: Vec<Option<f64>>,
}

/// Plot with groups of bars.
#[derive(Clone, Debug)]
pub struct Bars {
    pub title: String,
    /// Names of the groups, shown below them.
    pub groups: Vec<String>,
    pub y: Axis,
    /// One colour each, in this order.
    pub series: Vec<BarSeries>,
}

/// Share of a group's width that its bars fill.
const FILLED: f64 = 0.76;

/// Height of a bar and the ends of its whisker.
type Shape = fn(&Measured) -> [f64; 3];

impl Bars {
    /// Returns the plot as SVG: medians, with whiskers over all runs.
    pub fn svg(&self) -> Result<String, PlotError> {
        self.draw(|measured| [measured.median, measured.min, measured.max])
    }

    /// Returns the plot as SVG: means, with whiskers over the 95% confidence interval.
    pub fn svg_with_intervals(&self) -> Result<String, PlotError> {
        self.draw(|measured| {
            let (mean, half) = (measured.mean(), measured.interval());
            let half = if half.is_finite() { half } else { 0.0 };
            [mean, mean - half, mean + half]
        })
    }

    fn draw(&self, shape: Shape) -> Result<String, PlotError> {
        let measured = self.series.iter().flat_map(|s| s.values.iter().flatten());
        if measured.clone().next().is_none() {
            return Err(PlotError::Empty(self.title.clone()));
        }
        let paper = self.series.iter().flat_map(|s| s.paper.iter().flatten().copied());
        let y = self.y.span(measured.flat_map(shape).chain(paper.clone()));
        let x = Span::names(&self.groups);
        let mut entries: Vec<Entry> = (self.series.iter().enumerate())
            .map(|(n, s)| Entry { name: s.name.clone(), colour: colour(n), sample: Sample::Box })
            .collect();
        if paper.count() > 0 {
            entries.push(Entry { name: "the paper's figure".into(), colour: BLACK, sample: Sample::Dashed });
        }
        let width = FILLED / self.series.len() as f64;
        let (across, up) =
            (LabelledSpan { label: "", span: x }, LabelledSpan { label: &self.y.label, span: y.clone() });
        frame::sheet(&self.title, across, up, &entries, |chart| {
            for (place, series) in self.series.iter().enumerate() {
                for group in 0..self.groups.len() {
                    let left = group as f64 + (1.0 - FILLED) / 2.0 + place as f64 * width;
                    let (right, middle) = (left + width * 0.92, left + width * 0.46);
                    if let Some(value) = series.values.get(group).and_then(Option::as_ref) {
                        let [top, low, high] = shape(value);
                        let corners = [(left, y.floor()), (right, y.clamp(top))];
                        let whisker = vec![(middle, y.clamp(low)), (middle, y.clamp(high))];
                        chart.draw_series([Rectangle::new(corners, colour(place).filled())])?;
                        chart.draw_series([PathElement::new(whisker, BLACK.stroke_width(2))])?;
                    }
                    if let Some(paper) = series.paper.get(group).copied().flatten() {
                        let ends = [(left, y.clamp(paper)), (right, y.clamp(paper))];
                        chart.draw_series(DashedLineSeries::new(ends, 5, 4, BLACK.stroke_width(2)))?;
                    }
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_their_groups_and_the_papers_figures() {
        let value = |median: f64| Measured::from_runs(vec![median * 0.9, median, median * 1.3]);
        let bars = Bars {
            title: "Handover and service".into(),
            groups: vec!["unified".into(), "decomposed".into(), "S over H".into()],
            y: Axis::linear("latency p99 (ms)"),
            series: vec![
                BarSeries {
                    name: "service request".into(),
                    values: vec![value(30.0), value(9.0), value(5.0)],
                    paper: vec![Some(35.0), Some(10.0), None],
                },
                BarSeries { name: "handover".into(), values: vec![value(31.0), None, value(50.0)], paper: vec![] },
            ],
        };
        let svg = bars.svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let texts: Vec<&str> = document.descendants().filter_map(|n| n.text()).map(str::trim).collect();
        for text in ["unified", "decomposed", "S over H", "service request", "the paper's figure", "latency p99 (ms)"] {
            assert!(texts.contains(&text), "{text} in {texts:?}");
        }
        let boxes = document.descendants().filter(|n| n.has_tag_name("rect")).count();
        assert_eq!(boxes, 1 + 5 + 2, "the sheet, the bars and the legend");
        if let Some(path) = std::env::var_os("VIREO_KEEP_PLOTS") {
            std::fs::write(std::path::Path::new(&path).join("bars.svg"), &svg).unwrap();
        }
        assert_ne!(bars.svg_with_intervals().unwrap(), svg);
        let empty = Bars { series: Vec::new(), ..bars };
        assert!(empty.svg().is_err());
    }
}
