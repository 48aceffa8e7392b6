// Copy buttons beside what is shown only once.

const copied = document.getElementById("copied");
for (const button of document.querySelectorAll("[data-copies]")) {
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
      copied.textContent = "Copied.";
    } catch {
      copied.textContent = "This browser does not let a page copy; select the text.";
    }
  });
}
