//! Lines and points over time or load.

use super::PlotError;
use super::axis::{Axis, Span};
use super::frame::{self, Drawing, Entry, LabelledSpan, Refused, Sample, colour};
use plotters::prelude::*;
use vireo_bench::results::Measured;

/// Drawing style of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Line through the points.
    Line,
    Points,
}

/// Series of points.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    pub style: Style,
    /// Coordinates; points outside the axes are omitted.
    pub points: Vec<(f64, f64)>,
    /// Half the width of the confidence interval of each point; empty: none is drawn. A value that
    /// is not a number has no interval.
    pub half_widths: Vec<f64>,
}

/// Position of a mark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MarkPosition {
    /// Dashed vertical line.
    X(f64),
    /// Dashed horizontal line.
    Y(f64),
    Point(f64, f64),
}

/// Reference for comparison: the paper's figure, a limit or an event.
#[derive(Clone, Debug)]
pub struct Mark {
    pub name: String,
    pub at: MarkPosition,
}

/// Plot with lines and points.
#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    /// Values of a paper, drawn dashed.
    pub marks: Vec<Mark>,
}

impl Chart {
    /// Creates an empty plot.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Chart { title: title.into(), x, y, series: Vec::new(), marks: Vec::new() }
    }

    /// Adds a line.
    #[must_use]
    pub fn line(mut self, name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        self.series.push(Series { name: name.into(), style: Style::Line, points, half_widths: Vec::new() });
        self
    }

    /// Adds a line through the means, with the 95% confidence interval of each point.
    #[must_use]
    pub fn line_with_intervals(mut self, name: impl Into<String>, points: &[(f64, &Measured)]) -> Self {
        let half_widths = points.iter().map(|(_, measured)| measured.interval()).collect();
        let points = points.iter().map(|(x, measured)| (*x, measured.mean())).collect();
        self.series.push(Series { name: name.into(), style: Style::Line, points, half_widths });
        self
    }

    /// Adds a mark.
    #[must_use]
    pub fn mark(mut self, name: impl Into<String>, at: MarkPosition) -> Self {
        self.marks.push(Mark { name: name.into(), at });
        self
    }

    /// Returns the plot as SVG.
    pub fn svg(&self) -> Result<String, PlotError> {
        let shown = |(x, y): &(f64, f64)| self.x.takes(*x) && self.y.takes(*y);
        let series: Vec<Vec<(f64, f64)>> =
            self.series.iter().map(|s| s.points.iter().copied().filter(shown).collect()).collect();
        if series.iter().all(Vec::is_empty) {
            return Err(PlotError::Empty(self.title.clone()));
        }
        let marked = |axis: fn(MarkPosition) -> Option<f64>| self.marks.iter().filter_map(move |mark| axis(mark.at));
        let all = series.iter().flatten();
        let x = self.x.span(all.clone().map(|p| p.0).chain(marked(MarkPosition::x)));
        let ends = self.series.iter().flat_map(Series::intervals).flat_map(|(_, ends)| ends);
        let y = self.y.span(all.map(|p| p.1).chain(ends.filter(|y| self.y.takes(*y))).chain(marked(MarkPosition::y)));
        let entries = self.entries();
        let across = LabelledSpan { label: &self.x.label, span: x.clone() };
        let up = LabelledSpan { label: &self.y.label, span: y.clone() };
        frame::sheet(&self.title, across, up, &entries, |chart| {
            for (index, points) in series.iter().enumerate() {
                let inside = points.iter().map(|(px, py)| (x.clamp(*px), y.clamp(*py)));
                match self.series[index].style {
                    Style::Line => {
                        let style = colour(index).stroke_width(2);
                        chart.draw_series(LineSeries::new(inside, style))?;
                    }
                    Style::Points => {
                        chart.draw_series(inside.map(|p| Circle::new(p, 3, colour(index).filled())))?;
                    }
                }
            }
            for (index, series) in self.series.iter().enumerate() {
                for (px, [low, high]) in series.intervals().filter(|(px, ..)| self.x.takes(*px)) {
                    let ends = vec![(x.clamp(px), y.clamp(low)), (x.clamp(px), y.clamp(high))];
                    chart.draw_series([PathElement::new(ends, colour(index).stroke_width(1))])?;
                }
            }
            for (index, mark) in self.marks.iter().enumerate() {
                draw_mark(chart, mark.at, (&x, &y), colour(self.series.len() + index))?;
            }
            Ok(())
        })
    }

    fn entries(&self) -> Vec<Entry> {
        let series = self.series.iter().map(|s| {
            let sample = if s.style == Style::Line { Sample::Line } else { Sample::Point };
            (s.name.clone(), sample)
        });
        let marks = self.marks.iter().map(|mark| {
            let sample = if matches!(mark.at, MarkPosition::Point(..)) { Sample::Point } else { Sample::Dashed };
            (mark.name.clone(), sample)
        });
        let all = series.chain(marks).enumerate();
        all.map(|(index, (name, sample))| Entry { name, colour: colour(index), sample }).collect()
    }
}

impl Series {
    /// Returns the intervals: coordinate, and both ends.
    fn intervals(&self) -> impl Iterator<Item = (f64, [f64; 2])> {
        let all = self.points.iter().zip(&self.half_widths).filter(|(_, half)| half.is_finite());
        all.map(|((x, y), half)| (*x, [y - half, y + half]))
    }
}

impl MarkPosition {
    fn x(self) -> Option<f64> {
        match self {
            MarkPosition::X(x) | MarkPosition::Point(x, _) => Some(x),
            MarkPosition::Y(_) => None,
        }
    }

    fn y(self) -> Option<f64> {
        match self {
            MarkPosition::Y(y) | MarkPosition::Point(_, y) => Some(y),
            MarkPosition::X(_) => None,
        }
    }
}

fn draw_mark(chart: &mut Drawing<'_>, at: MarkPosition, axes: (&Span, &Span), colour: RGBColor) -> Result<(), Refused> {
    let (x, y) = axes;
    let ends = match at {
        MarkPosition::X(at) => [(x.clamp(at), y.low), (x.clamp(at), y.high)],
        MarkPosition::Y(at) => [(x.low, y.clamp(at)), (x.high, y.clamp(at))],
        MarkPosition::Point(at_x, at_y) => {
            let point = (x.clamp(at_x), y.clamp(at_y));
            chart.draw_series(std::iter::once(Circle::new(point, 5, colour.filled())))?;
            return Ok(());
        }
    };
    chart.draw_series(DashedLineSeries::new(ends, 7, 5, colour.stroke_width(2)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(svg: &str) -> Vec<String> {
        let document = roxmltree::Document::parse(svg).unwrap();
        assert_eq!(document.root_element().tag_name().name(), "svg");
        let texts = document.descendants().filter(|n| n.has_tag_name("text"));
        texts.filter_map(|n| n.text().map(|t| t.trim().to_owned())).collect()
    }

    #[test]
    fn chart_is_xml_with_labels() {
        let line: Vec<(f64, f64)> = (1..50).map(|n| (f64::from(n), f64::from(n * n))).collect();
        let mut chart = Chart::new("Latency & <load>", Axis::linear("time (s)"), Axis::log("latency (ms)"))
            .line("unified \"U\"", line)
            .mark("paper: 35 ms", MarkPosition::Y(35.0))
            .mark("killed", MarkPosition::X(20.0))
            .mark("paper", MarkPosition::Point(10.0, 4.0));
        // The axes cannot show these values.
        let odd = vec![(3.0, 0.0), (f64::NAN, 2.0), (4.0, 7.0)];
        chart.series.push(Series { name: "points".into(), style: Style::Points, points: odd, half_widths: vec![] });
        let svg = chart.svg().unwrap();
        let texts = names(&svg);
        for text in ["Latency & <load>", "time (s)", "latency (ms)", "unified \"U\"", "paper: 35 ms", "killed", "100"] {
            assert!(texts.iter().any(|t| t == text), "{text} in {texts:?}");
        }
        assert!(svg.contains("<polyline"));
        assert_eq!(svg.matches("<circle").count(), 4, "one point and one mark, each with its sample in the legend");
        if let Some(path) = std::env::var_os("VIREO_KEEP_PLOTS") {
            std::fs::write(std::path::Path::new(&path).join("chart.svg"), &svg).unwrap();
        }
    }

    #[test]
    fn confidence_intervals_are_drawn() {
        let measured = |runs: &[f64]| Measured::from_runs(runs.to_vec()).unwrap();
        let (three, single) = (measured(&[9.0, 10.0, 11.0]), measured(&[8.0]));
        let chart = |points: &[(f64, &Measured)]| {
            Chart::new("t", Axis::linear("x"), Axis::linear("y")).line_with_intervals("a", points).svg().unwrap()
        };
        // The ticks of the axes have another colour.
        let RGBColor(red, green, blue) = colour(0);
        let colour = format!("#{red:02X}{green:02X}{blue:02X}");
        let lines = |svg: &str| svg.split('<').filter(|e| e.starts_with("polyline") && e.contains(&colour)).count();
        let without = chart(&[(1.0, &single), (2.0, &single)]);
        let with = chart(&[(1.0, &three), (2.0, &single)]);
        assert!(lines(&without) > 0, "{without}");
        assert_eq!(lines(&with), lines(&without) + 1, "a single run has no interval");
    }

    #[test]
    fn chart_without_points_fails() {
        let chart = Chart::new("none", Axis::linear("x"), Axis::log("y")).line("a", vec![(1.0, 0.0)]);
        assert!(matches!(chart.svg(), Err(PlotError::Empty(title)) if title == "none"));
    }
}
