const form = document.querySelector("form");
const output = document.querySelector("output");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  output.className = "";
  output.textContent = "…";
  try {
    const answer = await fetch(form.dataset.path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: document.querySelector("textarea").value,
    });
    const content = await answer.json();
    output.className = answer.ok ? "" : "error";
    output.textContent = answer.ok
      ? JSON.stringify(content, null, 2)
      : `${content.what}\n${content.remedy}`;
  } catch (error) {
    output.className = "error";
    output.textContent = String(error);
  }
});
