"""The laboratory: tables of runs, tested claims and plots.

Three programs: ``streamfp-experiment`` (the paper's tables), ``streamfp-sweep`` (all combinations of some settings) and
``streamfp-compare`` (tables and plots of runs that exist). A cell of a table is one plain ``streamfp run`` with its own directory, so
an execution that was stopped continues, several processes may share the work, and no cell is run twice.

They need pandas, scipy and matplotlib; the rest of the package does not.
"""
