// On a narrow screen a diagram keeps its size and scrolls; elsewhere it is fitted to the column.
(() => {
  const initialize = mermaid.initialize.bind(mermaid);
  const fitted = { useMaxWidth: window.innerWidth >= 720 };
  mermaid.initialize = (chosen) =>
    initialize({
      ...chosen,
      flowchart: { ...chosen.flowchart, ...fitted },
      sequence: { ...chosen.sequence, ...fitted },
      state: { ...chosen.state, ...fitted },
    });
})();
